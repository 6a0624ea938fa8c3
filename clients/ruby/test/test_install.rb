# frozen_string_literal: true

require_relative "helper"

class InstallTest < ServerTest
  def setup
    super
    skip("the server has the portable edition") if db.exec("SHOW shared_preload_libraries").getvalue(0, 0).empty?
    @database = "install_#{Process.pid}"
    db.exec("CREATE DATABASE #{@database}")
    @target = PG.connect(dbname: @database)
    @target.set_notice_processor { |_| nil }
    @cleanup << lambda {
      @target.close
      db.exec("DROP DATABASE #{@database} WITH (FORCE)")
    }
  end

  def test_install
    assert_nil LockElection.install(@target, schema: "locks")
    assert_equal "6", @target.exec("SELECT 6").getvalue(0, 0)
    LockElection.install(@target, schema: "locks")
    LockElection.connect({ dbname: @database }, ttl: TTL) do |session|
      assert_equal 1, session.lock("a") { |hold| hold.fence_sql.include?("locks.fence_lock") ? 1 : 0 }
    end
  end

  def test_errors
    @target.transaction { assert_raises(LockElection::InvalidRequest) { LockElection.install(@target) } }
    assert_raises(LockElection::InvalidRequest) { LockElection.install("dbname=x") }
    @target.exec("SET search_path = nowhere")
    assert_raises(LockElection::Error) { LockElection.install(@target) }
    assert_equal PG::PQTRANS_IDLE, @target.transaction_status
  end

  def test_script = assert_includes(LockElection.install_script, "CREATE SCHEMA _lock_election")
end
