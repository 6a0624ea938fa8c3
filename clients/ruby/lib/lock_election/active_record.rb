# frozen_string_literal: true

require "active_record"
require "lock_election"

module LockElection
  # The interface of the gem with_advisory_lock, for all models of ActiveRecord. The locks belong to a separate session
  # and not to ActiveRecord's connections, so that neither the query cache nor the connection pool affects them.
  module AdvisoryLocks
    PREFIX = "WITH_ADVISORY_LOCK_PREFIX"
    OPTIONS = %i[timeout_seconds shared transaction disable_query_cache blocking].freeze
    Result = Struct.new(:lock_was_acquired, :result) { alias_method :lock_was_acquired?, :lock_was_acquired }

    @mutex = Mutex.new

    class << self
      # Sets the session for the models. By default, it is created from ActiveRecord's configuration.
      def session=(session)
        @mutex.synchronize do
          @session = session
          @pid = Process.pid
        end
      end

      # Returns the session of this process, and opens it if necessary. A forked child gets its own session.
      def session
        @mutex.synchronize do
          @session = nil if @pid != Process.pid
          @pid = Process.pid
          @session ||= LockElection.connect(params(::ActiveRecord::Base.connection_db_config.configuration_hash))
        end.reopen
      end

      # Returns the holds of the current thread, each as [name, shared, hold].
      def held = Thread.current[:lock_election_held] ||= []

      def name_of(lock_name) = "#{ENV.fetch(PREFIX, nil)}#{lock_name}"

      private

      def params(config)
        known = PG::Connection.conndefaults.map { |option| option[:keyword].to_sym }
        config.compact.transform_keys { |key| { username: :user, database: :dbname }.fetch(key, key) }.slice(*known)
      end
    end

    def self.included(model) = model.extend(ClassMethods)

    # Methods of the models' classes; the instances have the first four, too.
    module ClassMethods
      # Acquires the lock, yields the Hold, and releases the lock after the block. Returns the block's value, or false
      # if the lock was not acquired. If this thread already has the lock, the block runs immediately.
      #
      # timeout_seconds::     limit of the wait; nil = wait forever, 0 = try once
      # shared::              whether other shared holders are admitted at the same time
      # transaction::         whether to fence the open transaction: until it ends, no other client gets the lock
      # disable_query_cache:: whether the block bypasses ActiveRecord's query cache
      #
      # +blocking+ is accepted and ignored: all waits are in a queue of the server.
      def with_advisory_lock(lock_name, options = {}, &block)
        result = with_advisory_lock_result(lock_name, options, &block)
        result.lock_was_acquired? && result.result
      end

      # Like with_advisory_lock, but raises LockElection::NotAcquired if the lock was not acquired.
      def with_advisory_lock!(lock_name, options = {}, &block)
        result = with_advisory_lock_result(lock_name, options, &block)
        raise NotAcquired, "#{lock_name.inspect} is held by somebody else" unless result.lock_was_acquired?

        result.result
      end

      # Like with_advisory_lock, but returns a Result, with the methods lock_was_acquired? and result.
      def with_advisory_lock_result(lock_name, options = {}, &block)
        options = { timeout_seconds: options } unless options.respond_to?(:assert_valid_keys)
        options.assert_valid_keys(*OPTIONS)
        fenced = connection_to_fence if options[:transaction]
        name = AdvisoryLocks.name_of(lock_name)
        with_hold(name, options[:shared] ? true : false, options[:timeout_seconds]) do |hold|
          hold.fence(fenced) if fenced
          work = -> { block&.arity == 0 ? block.call : block&.call(hold) }
          options[:disable_query_cache] ? uncached(&work) : work.call
        end
      end

      # Whether anybody holds the lock. The answer may be outdated when this returns. To find out, acquires a free lock
      # for a moment.
      def advisory_lock_exists?(lock_name)
        name = AdvisoryLocks.name_of(lock_name)
        AdvisoryLocks.held.any? { |held, _| held == name } || AdvisoryLocks.session.try_lock(name) { true }.nil?
      end

      # The name of the outermost lock that the current thread holds, or nil.
      def current_advisory_lock = current_advisory_locks.first

      # The names of all locks that the current thread holds, the outermost first.
      def current_advisory_locks = AdvisoryLocks.held.map(&:first)

      private

      def connection_to_fence
        connection = respond_to?(:lease_connection) ? lease_connection : self.connection
        raise ArgumentError, "a lock of a transaction needs an open transaction" unless connection.transaction_open?

        connection
      end

      # Returns a hold of this thread that covers the request, or nil.
      def advisory_hold(name, shared)
        held = AdvisoryLocks.held.select { |one, _, _| one == name }
        found = held.find { |_, is_shared, _| shared || !is_shared }
        return found.last.check! if found
        return if held.empty?

        raise InvalidRequest, "this thread holds #{name.inspect} shared: it would wait for itself to have it alone"
      end

      def with_hold(name, shared, timeout)
        entered = false
        hold = advisory_hold(name, shared)
        return Result.new(true, yield(hold)) if hold

        AdvisoryLocks.session.lock(name, wait: timeout, shared: shared) do |own|
          entered = true
          AdvisoryLocks.held.push([name, shared, own])
          Result.new(true, yield(own))
        ensure
          AdvisoryLocks.held.pop
        end
      rescue NotAcquired
        raise if entered

        Result.new(false, nil)
      end
    end

    delegate :with_advisory_lock, :with_advisory_lock!, :with_advisory_lock_result, :advisory_lock_exists?, to: :class
  end
end

ActiveSupport.on_load(:active_record) { include LockElection::AdvisoryLocks }
