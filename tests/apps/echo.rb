# echo.rb server HOST PORT: a thread for each connection sends back what it gets.
# echo.rb client HOST PORT: messages of many sizes there and back, from some threads, compared.
require 'socket'

side, host, port = ARGV
if side == 'server'
  server = TCPServer.new(host, port)
  loop do
    Thread.start(server.accept) do |s|
      loop { s.write(s.readpartial(65_536)) }
    rescue EOFError
      s.close
    end
  end
end

threads = (1..4).map do |seed|
  Thread.new do
    pick = Random.new(seed)
    TCPSocket.open(host, port) do |s|
      300.times do |i|
        message = pick.bytes([1, 17, 1000, 65_536][i % 4])
        s.write(message)
        abort "wrong bytes in message #{i}" unless s.read(message.bytesize) == message
      end
      s.close_write
      abort 'more came than was sent' unless s.read.empty?
    end
  end
end
threads.each(&:join)
puts 'all came back'
