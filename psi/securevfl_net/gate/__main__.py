"""The gate's process: ``python -m securevfl_net.gate FD``, started only by `NetworkMesh.start`."""

from __future__ import annotations

import signal
import socket
import sys

from securevfl_net.gate.loop import serve

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program; the gate ends with it
    sys.exit(serve(socket.socket(fileno=int(sys.argv[1]))))
