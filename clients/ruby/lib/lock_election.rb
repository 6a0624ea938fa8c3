# frozen_string_literal: true

require "pg"
require "socket"
require "securerandom"
require "digest"
require "ipaddr"

# Distributed locks and leader election inside PostgreSQL.
#
#   session = LockElection.connect("dbname=app")
#   session.lock("invoices", wait: 5) { |hold| ... }
module LockElection
  class << self
    # The Logger to which sessions log lost holds (warn) and broken connections (info); nil = none.
    attr_accessor :logger

    # Opens a session with its own connection, and a lease that expires +ttl+ seconds after its last renewal. With a
    # block, closes the session after it and returns the block's value.
    #
    # conninfo:: a connection string of libpq or a Hash, with one or several hosts; the environment variables PGHOST,
    #            PGDATABASE, ... apply
    # ttl::      seconds, from 0.1 to 24 days
    # name::     the name that operators see for this process; nil = host:pid
    # on_event:: callable that is called with each Event, one after the other, in a separate thread
    #
    # Raises Unavailable, NotInstalled, AccessDenied, LimitExceeded or InvalidRequest.
    def connect(conninfo = "", ttl: 30, name: nil, on_event: nil)
      session = Session.new(conninfo, ttl, name, on_event)
      return session unless block_given?

      begin
        yield session
      ensure
        session.close
      end
    end
  end
end

require_relative "lock_election/version"
require_relative "lock_election/errors"
require_relative "lock_election/arguments"
require_relative "lock_election/wire"
require_relative "lock_election/lease"
require_relative "lock_election/engine"
require_relative "lock_election/events"
require_relative "lock_election/callers"
require_relative "lock_election/turn"
require_relative "lock_election/hold"
require_relative "lock_election/session"
require_relative "lock_election/install"
