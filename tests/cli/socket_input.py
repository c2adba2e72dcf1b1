"""socket_input.py FILE COMMAND...: runs the command with the file's bytes from a socket, as ssh does."""
import socket
import subprocess
import sys

ours, theirs = socket.socketpair()
process = subprocess.Popen(sys.argv[2:], stdin=theirs)
theirs.close()
with open(sys.argv[1], "rb") as file:
    ours.sendall(file.read())
ours.shutdown(socket.SHUT_WR)
sys.exit(process.wait())
