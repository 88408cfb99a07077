"""What tests share: small parties, keys, servers, networks, hostile ends."""
