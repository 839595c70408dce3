%% echo.escript server HOST PORT: a process for each connection sends back what it gets, {active, once}.
%% echo.escript client HOST PORT: messages of many sizes there and back, from some processes, compared.
-mode(compile).

main([Side, Host, Port]) ->
    {ok, Address} = inet:parse_address(Host),
    case Side of
        "server" -> serve(Address, list_to_integer(Port));
        "client" -> ask(Address, list_to_integer(Port))
    end.

serve(Address, Port) ->
    {ok, Listener} = gen_tcp:listen(Port, [binary, {ip, Address}, {packet, 4}, {active, false}, {reuseaddr, true}]),
    accept(Listener).

accept(Listener) ->
    {ok, S} = gen_tcp:accept(Listener),
    Pid = spawn(fun() -> receive go -> echo(S) end end),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! go,
    accept(Listener).

echo(S) ->
    ok = inet:setopts(S, [{active, once}]),
    receive
        {tcp, S, Data} -> ok = gen_tcp:send(S, Data), echo(S);
        {tcp_closed, S} -> ok
    end.

ask(Address, Port) ->
    Me = self(),
    Pids = [spawn_monitor(fun() -> connection(Address, Port), Me ! done end) || _ <- lists:seq(1, 8)],
    [receive {'DOWN', Ref, process, Pid, normal} -> ok;
             {'DOWN', Ref, process, Pid, Why} -> io:format("~p~n", [Why]), halt(1) end || {Pid, Ref} <- Pids],
    io:format("all came back~n").

connection(Address, Port) ->
    {ok, S} = gen_tcp:connect(Address, Port, [binary, {packet, 4}, {active, false}]),
    [begin
         Message = rand:bytes(element(I rem 4 + 1, {1, 17, 1000, 70000})),
         ok = gen_tcp:send(S, Message),
         {ok, Message} = gen_tcp:recv(S, 0, 20000)
     end || I <- lists:seq(1, 400)],
    ok = gen_tcp:close(S).

