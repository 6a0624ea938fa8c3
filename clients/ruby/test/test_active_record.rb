# frozen_string_literal: true

require_relative "helper"
begin
  require "lock_election/active_record"
rescue LoadError => e
  warn("ActiveRecord is not tested: #{e.message}")
end

class ActiveRecordTest < ServerTest
  class Note < ::ActiveRecord::Base; end if defined?(::ActiveRecord)

  def setup
    super
    skip("there is no ActiveRecord") unless defined?(::ActiveRecord)
    ::ActiveRecord::Base.establish_connection(
      adapter: "postgresql", host: ENV.fetch("PGHOST", nil), port: ENV.fetch("PGPORT", nil),
      username: ENV.fetch("PGUSER", nil), database: ENV.fetch("PGDATABASE", nil), pool: 20
    )
    session = LockElection::AdvisoryLocks.session = connect
    @other = connect
    assert_same session, LockElection::AdvisoryLocks.session
    Note.connection.execute("CREATE TABLE IF NOT EXISTS notes (id serial PRIMARY KEY, text text)")
  end

  def teardown
    ::ActiveRecord::Base.connection_handler.clear_all_connections! if defined?(::ActiveRecord)
    super
  end

  # --- without the gem's session: the functions in SQL ----------------------------------------------------------------

  def try_in_sql = Note.connection.select_value("SELECT try_acquire_lock('#{@name}', '1 min')")

  def release_in_sql(token) = db.exec("SELECT release_lock('#{@name}', #{token})").getvalue(0, 0)

  # The query cache, which Rails switches on in each request and job, answers from memory: two processes believe that
  # they hold the lock.
  def test_query_cache_grants_what_others_hold
    Note.connection.execute("SET client_min_messages = error") # a fence without a transaction warns
    Note.cache do
      first = try_in_sql
      release_in_sql(first)
      assert_equal "t", db.exec("SELECT try_acquire_lock('#{@name}', '1 min') IS NOT NULL").getvalue(0, 0)
      assert_equal first, try_in_sql, "an old token, while somebody else holds the lock"
      assert_raises(::ActiveRecord::StatementInvalid) do
        Note.connection.exec_query("SELECT fence_lock('#{@name}', #{first})")
      end
      assert_nil(Note.uncached { try_in_sql })
    end
  end

  def test_query_cache_is_no_matter_for_a_session
    Note.cache do
      3.times do
        hold = Note.with_advisory_lock(@name) { |one| one }
        assert_predicate hold, :lost?
        @other.lock(@name, wait: 5) do
          assert_equal false, Note.with_advisory_lock(@name, timeout_seconds: 0) { flunk }
          assert Note.advisory_lock_exists?(@name)
        end
        refute Note.advisory_lock_exists?(@name)
      end
    end
  end

  # --- the interface of with_advisory_lock ----------------------------------------------------------------------------

  def test_result
    assert_equal 5, Note.with_advisory_lock(@name) { 5 }
    assert_nil(Note.with_advisory_lock(@name) { nil })
    assert_equal 5, Note.new.with_advisory_lock(@name, timeout_seconds: 1) { 5 }
    result = Note.with_advisory_lock_result(@name) { false }
    assert_equal [true, false], [result.lock_was_acquired?, result.result]
    @other.lock(@name) do
      assert_equal false, Note.with_advisory_lock(@name, 0) { flunk }
      assert_equal false, Note.with_advisory_lock(@name, timeout_seconds: 0.1) { flunk }
      refute_predicate Note.with_advisory_lock_result(@name, timeout_seconds: 0) { flunk }, :lock_was_acquired?
      assert_raises(LockElection::NotAcquired) { Note.with_advisory_lock!(@name, timeout_seconds: 0) { flunk } }
    end
    assert_raises(ArgumentError) { Note.with_advisory_lock(@name, nonsense: 1) { flunk } }
    assert_raises(ZeroDivisionError) { Note.with_advisory_lock(@name) { 1 / 0 } }
    assert_nil Note.current_advisory_lock
  end

  # A lock that the block does not get is no result of the outer one.
  def test_not_acquired_in_the_block
    @other.lock("#{@name} 2") do
      assert_raises(LockElection::NotAcquired) do
        Note.with_advisory_lock(@name) { Note.with_advisory_lock!("#{@name} 2", timeout_seconds: 0) { flunk } }
      end
    end
  end

  def test_nested
    Note.with_advisory_lock(@name) do
      assert_equal 1, Note.with_advisory_lock(@name, timeout_seconds: 0) { 1 }
      assert_equal 1, Note.with_advisory_lock(@name, shared: true) { 1 }
      assert_nil @other.try_lock(@name)
      Note.with_advisory_lock("#{@name} 2") do
        assert_equal @name, Note.current_advisory_lock
        assert_equal [@name, "#{@name} 2"], Note.current_advisory_locks
        assert Note.advisory_lock_exists?("#{@name} 2")
        assert_equal [nil, false], Thread.new {
          [Note.current_advisory_lock, Note.with_advisory_lock(@name, timeout_seconds: 0) { flunk }]
        }.value
      end
    end
    Note.with_advisory_lock(@name, shared: true) do
      assert_equal 1, @other.try_lock(@name, shared: true) { 1 }
      assert_raises(LockElection::InvalidRequest) { Note.with_advisory_lock(@name) { flunk } }
    end
  end

  # What a thread has lost is not taken for held, and nested locks have their fences, too.
  def test_nested_after_a_loss
    Note.with_advisory_lock(@name) do |hold|
      Note.transaction do
        Note.with_advisory_lock(@name, transaction: true) { |same| assert_same hold, same }
        db.exec_params("SELECT force_release_lock($1)", [@name])
        assert_nil @other.try_lock(@name)
      end
      wait_until { hold.lost? }
      assert_raises(LockElection::LockLost) { Note.with_advisory_lock(@name) { flunk } }
    end
  end

  def test_block_without_a_parameter = assert_equal(5, Note.with_advisory_lock(@name, &-> { 5 }))

  def test_prefix
    ENV["WITH_ADVISORY_LOCK_PREFIX"] = "app "
    Note.with_advisory_lock(@name) { assert_equal "app #{@name}", Note.current_advisory_lock }
  ensure
    ENV.delete("WITH_ADVISORY_LOCK_PREFIX")
  end

  def test_query_cache_in_the_block
    Note.cache do
      text = SecureRandom.hex
      count = -> { Note.where(text: text).count }
      assert_equal 0, count.call
      db.exec_params("INSERT INTO notes (text) VALUES ($1)", [text])
      assert_equal 0, count.call
      assert_equal 0, Note.with_advisory_lock(@name, &count)
      assert_equal 1, Note.with_advisory_lock(@name, disable_query_cache: true, &count)
    end
  end

  # The lock of a transaction is kept until its end, by a fence: who loses it before cannot commit under it.
  def test_transaction
    assert_raises(ArgumentError) { Note.with_advisory_lock(@name, transaction: true) { flunk } }
    Note.transaction do
      Note.with_advisory_lock(@name, transaction: true) { Note.create!(text: @name) }
      assert_nil @other.try_lock(@name)
    end
    assert_equal 1, @other.lock(@name, wait: 5) { 1 }
  end

  # What is written in time is written, what is written late is refused and rolled back.
  def test_late_writes
    lock = "#{@name} it's :late? $1"
    Note.connection.execute("DROP TRIGGER IF EXISTS guard ON notes")
    # Refuses an insert whose transaction has no fence, such as one on another connection than the fence.
    Note.connection.execute("CREATE TRIGGER guard BEFORE INSERT ON notes " \
                            "EXECUTE FUNCTION fence_guard(#{Note.connection.quote(lock)})")
    fences = [->(hold) { hold.fence(Note.connection) }, ->(hold) { Note.connection.execute(hold.fence_sql) }]
    [LockElection::LockLost, ::ActiveRecord::StatementInvalid].zip(fences) do |error, fence|
      @other.lock(lock) do |hold|
        write = lambda do |text|
          Note.transaction do
            fence.call(hold)
            Note.create!(text: text)
          end
        end
        Note.cache { 2.times { write.call("#{@name} in time") } }
        db.exec_params("SELECT force_release_lock($1)", [lock])
        assert_match(/not held by token/, assert_raises(error) { write.call("#{@name} late") }.message)
      end
    end
    assert_equal 4, Note.where(text: "#{@name} in time").count
    assert_equal 0, Note.where(text: "#{@name} late").count
  ensure
    Note.connection.execute("DROP TRIGGER IF EXISTS guard ON notes")
  end

  def test_session_of_the_configuration
    LockElection::AdvisoryLocks.session = nil
    assert_equal 5, Note.with_advisory_lock(@name) { 5 }
    own = LockElection::AdvisoryLocks.session
    reader, writer = IO.pipe
    pid = fork do
      writer.write(Note.with_advisory_lock(@name, timeout_seconds: 5) { LockElection::AdvisoryLocks.session != own })
    end
    Process.wait(pid)
    writer.close
    assert_equal "true", reader.read
    assert_equal :connected, own.state
    own.close
  end
end
