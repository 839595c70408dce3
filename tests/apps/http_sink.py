"""http_sink.py HOST PORT: an HTTP server that answers a POST with what was posted, and a GET
with the number of POSTs so far. Keeps connections open; answers "Expect: 100-continue"."""
import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    posts = 0

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Handler.posts += 1
        self.answer(body)

    def do_GET(self):
        self.answer(b"%d\n" % Handler.posts)

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
