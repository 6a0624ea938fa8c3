# frozen_string_literal: true

module LockElection
  # The connection of a session, on libpq's functions that do not block. Every wait has a deadline. If a statement gets
  # no reply by then, the connection is closed, because there is no other way to find out that no reply will arrive.
  class Wire # :nodoc:
    CONNECT_LIMIT = 5.0
    TEXT_OID = 25

    # Words of libpq's errors about connection strings, and their meaning. The errors themselves are not shown: they
    # quote the string, which may contain a password.
    MISTAKES = {
      'missing "="' => "a value needs a keyword and an = before it; a value with a space needs quotes",
      "unterminated quoted" => "a quote is not closed",
      "percent-encoded" => "after a % two hexadecimal digits are needed; a % itself is %25",
      "invalid connection option" => "a keyword is unknown",
      "invalid URI query parameter" => "a parameter of the URL is unknown"
    }.freeze
    # A URL with at most one @, which comes before the path. A second @, or one after a /, shows that the special
    # characters of a password were not encoded.
    URL = %r{\Apostgres(ql)?://([^@/]*@)?[^@/?]*(/[^@?]*)?(\?.*)?\z}m
    ENCODE = "in a URL, special characters of a password are percent-encoded, such as @ as %40 and / as %2F"

    # SQLSTATEs by words of the message, because libpq does not report the SQLSTATE of a failed connection.
    REFUSALS = {
      /authentication failed|no password supplied/ => "28P01",
      /no pg_hba.conf entry|pg_hba.conf rejects|is not permitted to log in|role ".*" does not exist/ => "28000",
      /permission denied for database/ => "42501",
      /database ".*" does not exist/ => "3D000"
    }.freeze

    def initialize(conninfo, engine)
      @given = parse(conninfo)
      @engine = engine
      @limit = @given["connect_timeout"].to_i.positive? ? @given["connect_timeout"].to_f : CONNECT_LIMIT
      @hosts = hosts
    end

    def open? = !@conn.nil?

    # Moves the host of this connection to the end of the list, so that it is tried last.
    def avoid_host
      put_last(@used) if @used
      @used = nil
    end

    def close
      @conn&.finish
    rescue PG::Error
      nil
    ensure
      @conn = nil
    end

    # Replaces the socket with /dev/null in a forked child, so that closing this copy sends nothing to the server.
    def abandon
      @conn&.socket_io&.reopen(IO::NULL)
    rescue PG::Error, IOError, SystemCallError
      nil
    end

    # Makes a new connection, with +limit+ seconds for each host. Returns the process id from BackendKeyData.
    def connect(limit)
      close
      failure = Unavailable.new("no host")
      @hosts.dup.each do |host|
        till = @engine.now + (limit || @limit)
        begin
          resolve(host, till).each do |target|
            connect_one(target, till)
            @used = host
            return @conn.backend_pid.to_s
          rescue Broken => e
            failure = e.error
          end
        rescue Broken => e
          failure = e.error
        end
        put_last(host) if @engine.now >= till # the host is silent: try it last from now on
      end
      close
      raise Broken, failure
    end

    def prepare(name, sql, till) = run(till) { |conn| conn.send_prepare(name, sql) }

    # Runs a statement and returns its rows. Raises the server's error, or Broken, also if there is no reply in time.
    # params: nil = sql may contain several statements; an Array in it is an array of texts. name: the prepared
    # statement to run instead of sql.
    def query(sql, params, till, name = nil)
      run(till) do |conn|
        values = params&.map { |value| value.is_a?(Array) ? { value: array(value), format: 1 } : value&.b }
        if values.nil? then conn.send_query(sql)
        elsif name then conn.send_query_prepared(name, values)
        else conn.send_query_params(sql, values)
        end
      end
    end

    # Waits until that time, an alarm or the connection is ready, and handles the notifications that have arrived.
    def idle(till)
      return @engine.pause(till) unless @conn

      libpq do
        @conn.consume_input if @engine.pause(till, read: @conn.socket_io)
        take_notifications
      end
    end

    private

    def libpq
      yield
    rescue PG::Error, IOError, SystemCallError => e
      raise Broken, Unavailable.new("the connection broke: #{e.message.strip}"), cause: nil
    end

    def ready(till, what, read: nil, write: nil)
      loop do
        till = [till, @engine.close_until || NEVER].min
        return if @engine.pause(till, read: read, write: write)
        raise Broken, Unavailable.new(what) if @engine.now >= till
      end
    end

    def run(till)
      raise Broken, Unavailable.new("there is no connection") unless @conn

      libpq do
        yield @conn
        answer(till)
      end
    end

    def answer(till)
      rows = []
      failure = nil
      loop do
        flushed = @conn.sync_flush
        if !flushed || @conn.is_busy
          io = @conn.socket_io
          ready(till, "the server did not answer in time", read: io, write: flushed ? nil : io)
          @conn.consume_input
          next
        end
        result = @conn.sync_get_result or break
        if result.result_status == PG::PGRES_FATAL_ERROR then failure ||= failure_of(result)
        else rows = result.values.each { |row| row.each { |value| value&.force_encoding(Encoding::UTF_8) } }
        end
        result.clear
      end
      take_notifications
      raise Broken, failure || Unavailable.new(@conn.error_message.strip) if @conn.status != PG::CONNECTION_OK
      raise failure if failure

      rows
    end

    def failure_of(result)
      sqlstate, message, hint = [PG::PG_DIAG_SQLSTATE, PG::PG_DIAG_MESSAGE_PRIMARY, PG::PG_DIAG_MESSAGE_HINT]
                                .map { |field| result.error_field(field)&.dup&.force_encoding(Encoding::UTF_8)&.scrub }
      sqlstate ? LockElection.error_of(sqlstate, message, hint) : OutcomeUnknown.new(result.error_message.strip)
    end

    def take_notifications
      while (notification = @conn.notifies)
        @engine.notified(notification[:relname].dup.force_encoding(Encoding::UTF_8))
      end
    end

    # Returns an array of texts in the binary format. In an array literal, NULL depends on the setting array_nulls.
    def array(texts)
      head = texts.empty? ? [0, 0, TEXT_OID].pack("N*") : [1, 1, TEXT_OID, texts.size, 1].pack("N*")
      texts.inject(head) { |bytes, text| bytes << (text ? [text.bytesize].pack("N") << text.b : [-1].pack("l>")) }
    end

    # --- hosts --------------------------------------------------------------------------------------------------------

    # Returns the keywords and values of a connection string. No error, nor its cause, shows any part of it.
    def parse(conninfo)
      return conninfo.compact.to_h { |key, value| [key.to_s, value.to_s] } if conninfo.is_a?(Hash)

      unless conninfo.is_a?(String)
        raise InvalidRequest, "conninfo is of class #{conninfo.class}: it must be a String or a Hash"
      end

      mistake = if !conninfo.valid_encoding? || conninfo.include?("\0") then "it is no text"
                elsif conninfo.match?(%r{\Apostgres(ql)?://}) && !URL.match?(conninfo) then ENCODE
                end
      begin
        given = mistake ? {} : PG::Connection.conninfo_parse(conninfo).to_h { |one| [one[:keyword], one[:val]] }.compact
      rescue PG::Error => e
        mistake = MISTAKES.find { |words, _| e.message.include?(words) }&.last || "libpq does not understand it"
      end
      mistake ||= mistake_in(given)
      raise InvalidRequest, "the connection string cannot be parsed: #{mistake}", cause: nil if mistake

      given
    end

    # Returns the mistake in the values, or nil. A password with a special character can look like a host or a port.
    def mistake_in(given)
      hosts = given.values_at("host", "hostaddr").compact.flat_map { |list| list.split(",") }
      unless hosts.all? { |host| host.start_with?("/", "@") || address?(host) || host.match?(%r{\A[^\s@/?#&=;:'"]*\z}) }
        return "a host has a character that no host has; #{ENCODE}"
      end
      return "a port is not a number; #{ENCODE}" unless given["port"].to_s.match?(/\A[\d\s,]*\z/)

      limit = given["connect_timeout"].to_s
      "connect_timeout is not a whole number of seconds" unless limit.match?(/\A\s*[+-]?\d*\s*\z/)
    end

    def address?(host)
      IPAddr.new(host)
    rescue IPAddr::Error
      false
    end

    # Splits the connection string by hosts. libpq, given all hosts, would wait for a silent one without end. If a
    # service file may name the hosts, libpq tries them in turn.
    def hosts
      return [{}] if @given["service"] || ENV["PGSERVICE"]

      lists = %w[host hostaddr port].to_h { |key| [key, (@given[key] || ENV["PG#{key.upcase}"]).to_s.split(",")] }
      count = lists[lists["hostaddr"].empty? ? "host" : "hostaddr"].size
      (0...[count, 1].max).map { |i| lists.transform_values { |list| list.size == count ? list[i] : list[0] }.compact }
    end

    def put_last(host) = @hosts.push(@hosts.delete_at(@hosts.index(host)))

    # Returns a target for each address of a host. The name is resolved in a separate thread, because nothing can
    # limit or stop getaddrinfo().
    def resolve(host, till)
      name = host["host"].to_s
      return [host] if name.empty? || host["hostaddr"] || name.start_with?("/", "@") || address?(name)

      found = nil
      LockElection.thread("lock_election-resolve") do
        found = begin
          Addrinfo.getaddrinfo(name, nil, nil, :STREAM).map(&:ip_address)
        rescue SocketError => e
          e.message
        end
        @engine.alarm
      end
      @engine.pause(till) while found.nil? && @engine.now < [till, @engine.close_until || NEVER].min
      raise Broken, Unavailable.new("could not resolve \"#{name}\": #{found || "no answer"}") unless found.is_a?(Array)

      found.uniq.map { |address| host.merge("hostaddr" => address) }
    end

    def connect_one(target, till)
      close
      begin
        @conn = PG::Connection.connect_start(params(target))
      rescue PG::Error => e
        raise Broken, Unavailable.new(e.message.strip), cause: nil
      end
      status = PG::PGRES_POLLING_WRITING
      until status == PG::PGRES_POLLING_OK
        if status == PG::PGRES_POLLING_FAILED
          message = @conn.error_message.dup.force_encoding(Encoding::UTF_8).scrub.strip
          sqlstate = REFUSALS.find { |words, _| words.match?(message) }&.last || "08006"
          raise Broken, LockElection.error_of(sqlstate, message)
        end
        libpq do
          io = @conn.socket_io
          direction = status == PG::PGRES_POLLING_WRITING ? :write : :read
          ready(till, "no answer from #{target["host"] || "the server"} in time", direction => io)
          status = @conn.connect_poll
        end
      end
      libpq do
        @conn.sync_setnonblocking(true)
        @conn.set_notice_processor { |_| nil } # by default, libpq writes notices to stderr
      end
    end

    def params(target)
      defaults = { "tcp_user_timeout" => (@engine.call * 1000).to_i.to_s,
                   "fallback_application_name" => "lock_election" }
      defaults["target_session_attrs"] = "primary" unless ENV["PGTARGETSESSIONATTRS"]
      defaults.merge(@given, target, "client_encoding" => "UTF8").transform_keys(&:to_sym)
    end
  end
  private_constant :Wire
end
