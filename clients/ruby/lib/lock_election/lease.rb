# frozen_string_literal: true

module LockElection
  NEVER = Float::INFINITY
  LONGEST_SLEEP = 1.0 # seconds between checks of the clock, because timers do not count the time of a suspend
  private_constant :NEVER, :LONGEST_SLEEP

  # Wakes up one waiting thread. The wait can be interrupted, such as by Timeout, and then leaves nothing locked.
  class Waiter # :nodoc:
    def initialize
      @mutex = Mutex.new
      @changed = ConditionVariable.new
      @woken = false
    end

    def wake
      @mutex.synchronize do
        @woken = true
        @changed.signal
      end
    end

    def wait(seconds)
      @mutex.synchronize { @changed.wait(@mutex, seconds) unless @woken }
    end
  end

  # An object that callers wait for. Its next change wakes up all its waiters.
  class Request # :nodoc:
    attr_accessor :answer # the rows of a Call, the event of an Op's row, or an Error; nil = no reply yet

    def waiter = Waiter.new.tap { |waiter| (@waiters ||= []) << waiter }

    def wake
      waiters, @waiters = @waiters, nil
      waiters&.each(&:wake)
    end

    def answered(answer)
      @answer = answer
      wake
    end
  end

  # A read-only statement for one caller.
  class Call < Request # :nodoc:
    attr_reader :sql, :params

    def initialize(sql, params)
      super()
      @sql = sql
      @params = params
    end
  end

  # An item without a claim, for one caller: a proclaim, or a release that only tests whether its hold_for is allowed.
  class Op < Request # :nodoc:
    attr_accessor :sent, :alone
    attr_reader :item

    def initialize(item)
      super()
      @item = item # action, name, number, owner, value
    end
  end

  # The session's own lease, or the lease of all holds with some other TTL.
  class Lease < Request # :nodoc:
    RETRY_FIRST = 0.05

    attr_reader :ttl, :claims, :asks, :back, :ghosts, :ops, :queued, :pending
    attr_accessor :state, :id, :certain, :deadline, :renew_at, :poll_at, :hinted, :number, :incarnation, :news,
                  :channel, :apart, :unsure, :trouble, :flight

    def initialize(ttl)
      super()
      @ttl = ttl
      @state = :new # :new, :live, :ended
      @certain = false # whether any reply had a validity
      @deadline = -NEVER # the latest deadline of all confirmed renewals
      @renew_at = @poll_at = NEVER # times at which a call is due for a renewal, and for other reasons
      @hinted = false # whether a notification has arrived since the last call was sent
      @number = 0 # number of the last call
      @apart = false # whether the last call had releases and left the requests to the next call
      @unsure = false # whether a call got no reply, so that the news must be read before requests are sent again
      @trouble = false # whether the server has rejected the last call as a whole
      @claims = {} # claims that are not :done, by owner text
      @asks = {} # requests, in order; each stays until a reply has its result
      @back = {} # claims to be released
      @ghosts = {} # unwanted grants: [kind, name, token]
      @ops = {}
      @queued = {} # claims in phase :queued that are still wanted
      @pending = {} # claims that are not durable yet
      @flight = {} # items of the current call, by number: the request and a name
    end

    def live? = @state == :live

    # The limit of a statement, in seconds.
    def call = (@ttl / 4).clamp(0.2, 10.0)

    def margin = [@ttl / 20, 1.0].min

    def longest_pause = [margin, RETRY_FIRST].max

    # Records a renewal that was sent at that time. validity: seconds for which the lease stays valid even if the server
    # crashes. It can be less than the TTL, for example after a restart.
    def renewed(sent, validity)
      @deadline = [@deadline, sent + validity - margin].max
      @renew_at = sent + LockElection.jitter([[validity / 3, longest_pause].max, @ttl / 3].min)
    end
  end

  # A request for a lock, a permit, several locks or a term, from the call until its release.
  class Claim < Request # :nodoc:
    attr_reader :kind, :names, :attempt, :last, :on_lost
    attr_accessor :lease, :owner, :state, :phase, :token, :alone, :overdue, :error, :evicted, :hold_for, :left, :sent,
                  :released, :since

    # kind: lock, shared, permit, candidate. last: number of permits, or the candidate's text.
    def initialize(kind, names, attempt, last, on_lost)
      super()
      @kind = kind
      @names = names
      @attempt = attempt
      @last = last
      @on_lost = on_lost
      @state = :waiting # as the application sees it: :waiting, :held, :over, :lost
      @phase = :new # on the server: :new, :sent (no reply yet), :pending, :queued, :granted, :done (nothing is left)
      @token = 0
      @alone = false # sent in a separate call, because a call with other items was rejected as a whole
      @overdue = false # its wait has timed out, so only a grant in the first reply counts
      @evicted = false # :lost, and not released yet
      @hold_for = 0.0
      @left = [] # names that are not released yet
      @sent = 0 # number of times that the release was sent
      @since = 0.0 # time of the request, then of the grant
    end

    def open? = @state == :waiting || @state == :held

    def election? = @kind == "candidate"

    def to_s
      kind = { "shared" => "lock", "candidate" => "election" }.fetch(@kind, @kind)
      "#{kind} #{@names.map(&:inspect).join(", ")}"
    end
  end

  # The leader of an election: its text and its term.
  Leader = Struct.new(:value, :term)

  # The queue of one Watch. +after+ is the last change that was reported; nil = start with the current leader.
  class Observer # :nodoc:
    attr_reader :election, :queue, :channel
    attr_accessor :after, :last, :due

    def initialize(election)
      @election = election
      @queue = Thread::Queue.new
      @channel = "le_#{Digest::SHA256.hexdigest("election #{election}".b)[0, 32]}"
      @last = :none
      @due = 0.0
    end
  end

  # A clock, in seconds, that counts while the machine is suspended. On platforms without such a clock, it is the
  # monotonic clock, plus the time by which the wall clock has run ahead of it. If the wall clock is set forward, locks
  # are lost early, which is safe.
  module Clock # :nodoc:
    NUMBER = if RUBY_PLATFORM.include?("darwin") then Process::CLOCK_MONOTONIC
             elsif defined?(Process::CLOCK_BOOTTIME) then Process::CLOCK_BOOTTIME
             end
    @suspended = @lead = 0.0
    @mutex = Mutex.new

    def self.now
      return Process.clock_gettime(NUMBER) if NUMBER

      larger(Process.clock_gettime(Process::CLOCK_MONOTONIC), Process.clock_gettime(Process::CLOCK_REALTIME))
    end

    def self.larger(monotonic, wall)
      @mutex.synchronize do
        @lead = wall - monotonic if @lead.zero?
        ahead = wall - monotonic - @lead
        if ahead.abs >= 0.5 # smaller differences are noise
          @lead += ahead
          @suspended += [ahead, 0.0].max
        end
        monotonic + @suspended
      end
    end
  end
  private_constant :Waiter, :Request, :Call, :Op, :Lease, :Claim, :Observer, :Clock

  # Starts a thread that can be interrupted. It would inherit the interrupt mask of its creator, which may be in sync().
  def self.thread(name, &block) # :nodoc:
    Thread.new { Thread.handle_interrupt(Object => :immediate, &block) }.tap { |thread| thread.name = name }
  end

  def self.jitter(seconds) = seconds * rand(0.9..1.1) # :nodoc:

  def self.ms(seconds) = "#{(seconds * 1000).round} ms" # :nodoc:
end
