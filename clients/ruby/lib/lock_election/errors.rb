# frozen_string_literal: true

module LockElection
  # Base class of all errors of this gem. +sqlstate+ is the server's SQLSTATE, or "" if there is none.
  class Error < StandardError
    attr_reader :sqlstate

    def initialize(message = nil, sqlstate = "")
      super(message)
      @sqlstate = sqlstate
    end

    # Whether the same request may succeed if it is retried soon.
    def passes? = false

    # Whether the error makes a new connection necessary: no server, a restart, too many connections, or a standby.
    def breaks? = sqlstate.start_with?("08", "57P01", "57P02", "57P03", "53300", "25006")
  end

  # The lock was not acquired, because others hold it or the wait timed out. The caller holds nothing and has no place.
  class NotAcquired < Error; end

  # The lock, place, term or lease has ended. The server reports this (LE001), or the local deadline has passed.
  class LockLost < Error; end

  # The session was closed while the call waited. Nothing is held.
  class Canceled < Error; end

  # PostgreSQL has detected a deadlock (40P01). Roll the transaction back and repeat it.
  class DeadlockDetected < Error; end

  # A limit of the role or the server was reached (53400, 53200); the message names its setting.
  class LimitExceeded < Error; end

  # A privilege is missing, or the password is wrong (42501, 28xxx).
  class AccessDenied < Error; end

  # An argument is invalid (also 22xxx), or the session belongs to another process.
  class InvalidRequest < Error; end

  # There is no server, no such database, or no reply in time. The call has no lasting effect.
  class Unavailable < Error
    def passes? = true
  end

  # The extension is not installed in this database, or not preloaded. The message names the command to run.
  class NotInstalled < Unavailable
    def passes? = false
  end

  # There was no reply. The request may have taken effect, or may take effect later.
  class OutcomeUnknown < Error
    def passes? = true
  end

  # Any other server error. The call had no effect.
  class ServerError < Error; end

  # The connection has broken. The statement that was running may have taken effect.
  class Broken < StandardError # :nodoc:
    attr_reader :error

    def initialize(error)
      super(error.message)
      @error = error
    end
  end

  # SQLSTATEs or their prefixes, by error class. The first class that matches is raised.
  KINDS = {
    LockLost => %w[LE001],
    DeadlockDetected => %w[40P01],
    LimitExceeded => %w[53400 53200],
    AccessDenied => %w[42501 28],
    InvalidRequest => %w[22],
    NotInstalled => %w[42883 3F000 55000],
    OutcomeUnknown => %w[57014 40003 08007],
    Unavailable => %w[25006 3D000 55P03 40001 08 53 57 58 XX]
  }.freeze
  INSTALL = "CREATE EXTENSION lock_election, or lockctl install for the portable edition"
  PRELOAD = "add lock_election to shared_preload_libraries, and restart the server"
  private_constant :Broken, :KINDS, :INSTALL, :PRELOAD

  # Returns the error of this gem for a server error.
  def self.error_of(sqlstate, message, hint = nil)
    kind = KINDS.find { |_, prefixes| sqlstate.start_with?(*prefixes) }&.first || ServerError
    hint ||= (sqlstate == "55000" ? PRELOAD : INSTALL) if kind == NotInstalled
    kind.new(hint ? "#{message} (#{hint})" : message, sqlstate)
  end
end
