"""echo_server.py asyncio|threads|processes|fork HOST PORT: sends back what it gets, until the end of stream.

processes: four, begun before the first connection, accept on one listening socket. fork: one for each connection.
"""
import asyncio
import multiprocessing
import os
import signal
import socket
import sys
import threading


async def asyncio_connection(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    finally:
        writer.close()


async def asyncio_main(host, port):
    server = await asyncio.start_server(asyncio_connection, host, port)
    async with server:
        await server.serve_forever()


def thread_connection(s):
    with s:
        while data := s.recv(65536):
            s.sendall(data)
        s.shutdown(socket.SHUT_WR)


def accept_threads(listener):
    while True:
        s, _ = listener.accept()
        threading.Thread(target=thread_connection, args=(s,), daemon=True).start()


def threads_main(host, port):
    with socket.create_server((host, port), backlog=64) as listener:
        accept_threads(listener)


def processes_main(host, port):
    with socket.create_server((host, port), backlog=64) as listener:
        for _ in range(4):
            multiprocessing.Process(target=accept_threads, args=(listener,), daemon=True).start()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # which ends the daemons
        while True:
            signal.pause()


def fork_main(host, port):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.create_server((host, port), backlog=64) as listener:
        while True:
            s, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                thread_connection(s)
                os._exit(0)
            s.close()


kind, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "asyncio":
    asyncio.run(asyncio_main(host, port))
elif kind == "processes":
    processes_main(host, port)
elif kind == "fork":
    fork_main(host, port)
else:
    threads_main(host, port)
