"""Known answers of standards, number by number as they are published, with where they were copied from."""

from __future__ import annotations

__all__ = ["EXPANDER", "EXPANDER_DST", "FIPS_180_4", "NONUNIFORM", "RANDOM_ORACLE", "RANDOM_ORACLE_DST"]

# NIST, "Examples with intermediate values" for FIPS 180-4, SHA-512: one block and two; and the well-known digest of no
# bytes.
FIPS_180_4 = [
    (
        "abc",
        b"abc",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
        "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
    ),
    (
        "two blocks",
        b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
        "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018"
        "501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909",
    ),
    (
        "no bytes",
        b"",
        "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"
        "47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
    ),
]

# RFC 9380, appendix K.3: expand_message_xmd with SHA-512, all ten: message, length, uniform bytes. Copied from a public
# Rust test suite that quotes draft 12 of the RFC; three of them ("" and "abc" to 32 bytes, "" to 128) also stand in one
# that quotes the RFC itself.
EXPANDER_DST = b"QUUX-V01-CS02-with-expander-SHA512-256"
EXPANDER = [
    (b"", 32, "6b9a7312411d92f921c6f68ca0b6380730a1a4d982c507211a90964c394179ba"),
    (b"abc", 32, "0da749f12fbe5483eb066a5f595055679b976e93abe9be6f0f6318bce7aca8dc"),
    (b"abcdef0123456789", 32, "087e45a86e2939ee8b91100af1583c4938e0f5fc6c9db4b107b83346bc967f58"),
    (b"q128_" + b"q" * 128, 32, "7336234ee9983902440f6bc35b348352013becd88938d2afec44311caf8356b3"),
    (b"a512_" + b"a" * 512, 32, "57b5f7e766d5be68a6bfe1768e3c2b7f1228b3e4b3134956dd73a59b954c66f4"),
    (
        b"",
        128,
        "41b037d1734a5f8df225dd8c7de38f851efdb45c372887be655212d07251b921b052b62eaed99b46f72f2ef4cc96bfaf"
        "254ebbbec091e1a3b9e4fb5e5b619d2e0c5414800a1d882b62bb5cd1778f098b8eb6cb399d5d9d18f5d5842cf5d13d7e"
        "b00a7cff859b605da678b318bd0e65ebff70bec88c753b159a805d2c89c55961",
    ),
    (
        b"abc",
        128,
        "7f1dddd13c08b543f2e2037b14cefb255b44c83cc397c1786d975653e36a6b11bdd7732d8b38adb4a0edc26a0cef4bb4"
        "5217135456e58fbca1703cd6032cb1347ee720b87972d63fbf232587043ed2901bce7f22610c0419751c065922b48843"
        "1851041310ad659e4b23520e1772ab29dcdeb2002222a363f0c2b1c972b3efe1",
    ),
    (
        b"abcdef0123456789",
        128,
        "3f721f208e6199fe903545abc26c837ce59ac6fa45733f1baaf0222f8b7acb0424814fcb5eecf6c1d38f06e9d0a6ccfb"
        "f85ae612ab8735dfdf9ce84c372a77c8f9e1c1e952c3a61b7567dd0693016af51d2745822663d0c2367e3f4f0bed827f"
        "eecc2aaf98c949b5ed0d35c3f1023d64ad1407924288d366ea159f46287e61ac",
    ),
    (
        b"q128_" + b"q" * 128,
        128,
        "b799b045a58c8d2b4334cf54b78260b45eec544f9f2fb5bd12fb603eaee70db7317bf807c406e26373922b7b8920fa29"
        "142703dd52bdf280084fb7ef69da78afdf80b3586395b433dc66cde048a258e476a561e9deba7060af40adf30c64249c"
        "a7ddea79806ee5beb9a1422949471d267b21bc88e688e4014087a0b592b695ed",
    ),
    (
        b"a512_" + b"a" * 512,
        128,
        "05b0bfef265dcee87654372777b7c44177e2ae4c13a27f103340d9cd11c86cb2426ffcad5bd964080c2aee97f03be1ca"
        "18e30a1f14e27bc11ebbd650f305269cc9fb1db08bf90bfc79b42a952b46daf810359e7bc36452684784a64952c343c5"
        "2e5124cd1f71d474d5197fefc571a92929c9084ffe1112cf5eea5192ebff330b",
    ),
]

# RFC 9380, appendix J.4.2, all five: message, u, Q.x, P.x. Copied from a public TypeScript test suite that quotes the
# RFC; P.x of the first three also in one of C++.
NONUNIFORM = [
    (
        b"",
        "608d892b641f0328523802a6603427c26e55e6f27e71a91a478148d45b5093cd",
        "51125222da5e763d97f3c10fcc92ea6860b9ccbbd2eb1285728f566721c1e65b",
        "1bb913f0c9daefa0b3375378ffa534bda5526c97391952a7789eb976edfe4d08",
    ),
    (
        b"abc",
        "46f5b22494bfeaa7f232cc8d054be68561af50230234d7d1d63d1d9abeca8da5",
        "7d56d1e08cb0ccb92baf069c18c49bb5a0dcd927eff8dcf75ca921ef7f3e6eeb",
        "7c22950b7d900fa866334262fcaea47a441a578df43b894b4625c9b450f9a026",
    ),
    (
        b"abcdef0123456789",
        "235fe40c443766ce7e18111c33862d66c3b33267efa50d50f9e8e5d252a40aaa",
        "3fbe66b9c9883d79e8407150e7c2a1c8680bee496c62fabe4619a72b3cabe90f",
        "31ad08a8b0deeb2a4d8b0206ca25f567ab4e042746f792f4b7973f3ae2096c52",
    ),
    (
        b"q128_" + b"q" * 128,
        "001e92a544463bda9bd04ddbe3d6eed248f82de32f522669efc5ddce95f46f5b",
        "227e0bb89de700385d19ec40e857db6e6a3e634b1c32962f370d26f84ff19683",
        "027877759d155b1997d0d84683a313eb78bdb493271d935b622900459d52ceaa",
    ),
    (
        b"a512_" + b"a" * 512,
        "1a68a1af9f663592291af987203393f707305c7bac9c8d63d6a729bdc553dc19",
        "3bcd651ee54d5f7b6013898aab251ee8ecc0688166fce6e9548d38472f6bd196",
        "5fd892c0958d1a75f54c3182a18d286efab784e774d1e017ba2fb252998b5dc1",
    ),
]

# RFC 9380, appendix J.4.1, all five: message, P.x, P.y, u[0], u[1], Q0.x, Q0.y, Q1.x, Q1.y. Equal, number by number, to
# the table in libcrux's tests, which was extracted from the RFC's text; P of the first three also in YACL's.
RANDOM_ORACLE_DST = b"QUUX-V01-CS02-with-curve25519_XMD:SHA-512_ELL2_RO_"
RANDOM_ORACLE = [
    (
        b"",
        "2de3780abb67e861289f5749d16d3e217ffa722192d16bbd9d1bfb9d112b98c0",
        "3b5dc2a498941a1033d176567d457845637554a2fe7a3507d21abd1c1bd6e878",
        "005fe8a7b8fef0a16c105e6cadf5a6740b3365e18692a9c05bfbb4d97f645a6a",
        "1347edbec6a2b5d8c02e058819819bee177077c9d10a4ce165aab0fd0252261a",
        "36b4df0c864c64707cbf6cf36e9ee2c09a6cb93b28313c169be29561bb904f98",
        "6cd59d664fb58c66c892883cd0eb792e52055284dac3907dd756b45d15c3983d",
        "3fa114783a505c0b2b2fbeef0102853c0b494e7757f2a089d0daae7ed9a0db2b",
        "76c0fe7fec932aaafb8eefb42d9cbb32eb931158f469ff3050af15cfdbbeff94",
    ),
    (
        b"abc",
        "2b4419f1f2d48f5872de692b0aca72cc7b0a60915dd70bde432e826b6abc526d",
        "1b8235f255a268f0a6fa8763e97eb3d22d149343d495da1160eff9703f2d07dd",
        "49bed021c7a3748f09fa8cdfcac044089f7829d3531066ac9e74e0994e05bc7d",
        "5c36525b663e63389d886105cee7ed712325d5a97e60e140aba7e2ce5ae851b6",
        "16b3d86e056b7970fa00165f6f48d90b619ad618791661b7b5e1ec78be10eac1",
        "4ab256422d84c5120b278cbdfc4e1facc5baadffeccecf8ee9bf3946106d50ca",
        "7ec29ddbf34539c40adfa98fcb39ec36368f47f30e8f888cc7e86f4d46e0c264",
        "10d1abc1cae2d34c06e247f2141ba897657fb39f1080d54f09ce0af128067c74",
    ),
    (
        b"abcdef0123456789",
        "68ca1ea5a6acf4e9956daa101709b1eee6c1bb0df1de3b90d4602382a104c036",
        "2a375b656207123d10766e68b938b1812a4a6625ff83cb8d5e86f58a4be08353",
        "6412b7485ba26d3d1b6c290a8e1435b2959f03721874939b21782df17323d160",
        "24c7b46c1c6d9a21d32f5707be1380ab82db1054fde82865d5c9e3d968f287b2",
        "71de3dadfe268872326c35ac512164850860567aea0e7325e6b91a98f86533ad",
        "26a08b6e9a18084c56f2147bf515414b9b63f1522e1b6c5649f7d4b0324296ec",
        "5704069021f61e41779e2ba6b932268316d6d2a6f064f997a22fef16d1eaeaca",
        "50483c7540f64fb4497619c050f2c7fe55454ec0f0e79870bb44302e34232210",
    ),
    (
        b"q128_" + b"q" * 128,
        "096e9c8bae6c06b554c1ee69383bb0e82267e064236b3a30608d4ed20b73ac5a",
        "1eb5a62612cafb32b16c3329794645b5b948d9f8ffe501d4e26b073fef6de355",
        "5e123990f11bbb5586613ffabdb58d47f64bb5f2fa115f8ea8df0188e0c9e1b5",
        "5e8553eb00438a0bb1e7faa59dec6d8087f9c8011e5fb8ed9df31cb6c0d4ac19",
        "7a94d45a198fb5daa381f45f2619ab279744efdd8bd8ed587fc5b65d6cea1df0",
        "67d44f85d376e64bb7d713585230cdbfafc8e2676f7568e0b6ee59361116a6e1",
        "30506fb7a32136694abd61b6113770270debe593027a968a01f271e146e60c18",
        "7eeee0e706b40c6b5174e551426a67f975ad5a977ee2f01e8e20a6d612458c3b",
    ),
    (
        b"a512_" + b"a" * 512,
        "1bc61845a138e912f047b5e70ba9606ba2a447a4dade024c8ef3dd42b7bbc5fe",
        "623d05e47b70e25f7f1d51dda6d7c23c9a18ce015fe3548df596ea9e38c69bf1",
        "20f481e85da7a3bf60ac0fb11ed1d0558fc6f941b3ac5469aa8b56ec883d6d7d",
        "017d57fd257e9a78913999a23b52ca988157a81b09c5442501d07fed20869465",
        "02d606e2699b918ee36f2818f2bc5013e437e673c9f9b9cdc15fd0c5ee913970",
        "29e9dc92297231ef211245db9e31767996c5625dfbf92e1c8107ef887365de1e",
        "38920e9b988d1ab7449c0fa9a6058192c0c797bb3d42ac345724341a1aa98745",
        "24dcc1be7c4d591d307e89049fd2ed30aae8911245a9d8554bf6032e5aa40d3d",
    ),
]
