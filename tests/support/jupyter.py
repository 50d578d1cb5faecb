"""A program that is called as jupyter is, for hosts of tests."""

from __future__ import annotations

JUPYTER = """#!/usr/bin/env python3
# What jupyter_server does, as far as orch uses it: the runtime file, the token of the environment, the first free port.
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
if sys.argv[1] != "lab":
    sys.exit(1)
if "--version" in sys.argv:
    print("4.6.6")
    sys.exit(0)
token = os.environ["JUPYTER_TOKEN"]
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass  # it writes [secret] for the token
    def do_GET(self):
        self.send_response(200 if self.path == "/?token=" + token else 403)
        self.end_headers()
        self.wfile.write(os.getcwd().encode())
HTTPServer.allow_reuse_address = False
for port in range(8888, 8939):
    try:
        server = HTTPServer(("127.0.0.1", port), Handler)
        break
    except OSError:
        pass
file = os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], "jpserver-%d.json" % os.getpid())
with open(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600), "w") as written:
    port = server.server_address[1]
    json.dump({"port": port, "token": token, "pid": os.getpid()}, written, indent=2)
server.serve_forever()
"""
PUT_JUPYTER = "mkdir -p .local/bin && cat >.local/bin/jupyter && chmod +x .local/bin/jupyter"
