# frozen_string_literal: true

module LockElection
  # A change, for on_event.
  #
  # kind::    :acquired, :not_acquired, :released or :lost; of the session: :suspended, :resumed, or :ended if its lease
  #           is lost
  # mode::    :lock, :shared, :permit, :election or :session
  # names::   the names of the locks, or of the election; empty for a session
  # token::   the hold's token; 0 = none
  # time::    a Time
  # seconds:: how long the caller has waited, the lock was held, or the session was suspended
  # error::   the reason of :not_acquired, :lost, :suspended or :ended; otherwise nil
  Event = Struct.new(:kind, :mode, :names, :token, :time, :seconds, :error)

  # The part of the engine that reports events. Its methods need the mutex; on_event runs without it.
  class Engine # :nodoc:
    # Returns the threads that end with the session.
    def threads = [@thread, @reporter].compact

    private

    def report_to(on_event)
      @events = events = Thread::Queue.new
      @reporter = LockElection.thread("lock_election-events") do
        while (event = events.pop)
          begin
            on_event.call(event)
          rescue StandardError, ScriptError, SystemStackError => e
            log(:error, "on_event of #{event.kind}: #{e.full_message(highlight: false)}")
          end
        end
      end
    end

    def report(kind, claim = nil, error = nil)
      time = now
      since = (claim ? claim.since : @suspended_at) || time
      claim ? claim.since = time : @suspended_at = (time if kind == :suspended)
      return if @events.nil? || @events.closed?

      mode = claim ? claim.kind.sub("candidate", "election").to_sym : :session
      @events << Event.new(kind, mode, claim&.names || [], claim&.token || 0, Time.now, time - since, error)
    end

    # Handles a successful renewal.
    def answering
      @failures = 0
      report(:resumed) if @suspended_at
    end
  end
end
