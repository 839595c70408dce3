"""grpc_echo.py server|client ADDRESS:PORT - messages of bytes over gRPC without generated code: single ones, from several
threads on one channel, and a stream in both directions. The client exits with 0 if every byte came back."""
import sys
from concurrent import futures

import grpc

BYTES = {"request_deserializer": None, "response_serializer": None}


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/echo/one":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request)
        return grpc.stream_stream_rpc_method_handler(lambda requests, context: requests)


def server(at):
    s = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", -1)])
    s.add_generic_rpc_handlers((Echo(),))
    s.add_insecure_port(at)
    s.start()
    s.wait_for_termination()


def message(i):
    return (b"%d " % (i * 7919)) * (i * i % 4001 + 1)


def client(at):
    with grpc.insecure_channel(at, options=[("grpc.max_receive_message_length", -1)]) as channel:
        one = channel.unary_unary("/echo/one")
        with futures.ThreadPoolExecutor(4) as pool:
            for i, got in enumerate(pool.map(lambda i: one(message(i)), range(1000))):
                if got != message(i):
                    sys.exit(f"message {i} differs")
        both = channel.stream_stream("/echo/many")
        n = 0
        for got in both(message(i) for i in range(2000)):
            if got != message(n):
                sys.exit(f"message {n} of the stream differs")
            n += 1
        if n != 2000:
            sys.exit(f"only {n} of 2000 came back")


{"server": server, "client": client}[sys.argv[1]](sys.argv[2])
