# frozen_string_literal: true

require_relative "helper"

class FenceTest < ServerTest
  def test_fence
    session = connect
    session.lock(@name) do |hold|
      assert_raises(LockElection::InvalidRequest) { hold.fence(db) }
      assert_raises(LockElection::InvalidRequest) { hold.fence("dbname=x") }
      db.transaction do
        assert_nil hold.fence(db)
        session.campaign(@name, "me") { |term| term.fence(db) }
      end
    end
  end

  # Until the transaction has ended, nobody else gets the lock, even if it was released.
  def test_outlasts_a_release
    session = connect
    db.transaction do
      session.lock(@name) { |hold| hold.fence(db) }
      assert_nil session.try_lock(@name)
    end
    assert_equal 1, session.lock(@name, wait: 5) { 1 }
  end

  def test_lost
    hold = connect.lock(@name)
    PG.connect { |other| other.exec_params("SELECT force_release_lock($1)", [@name]) }
    error = assert_raises(LockElection::LockLost) { db.transaction { hold.fence(db) } }
    assert_equal "LE001", error.sqlstate
    wait_until { hold.lost? }
    assert_raises(LockElection::LockLost) { hold.fence_sql }
  end

  # For names that an ORM could misread, several of them, and a term.
  def test_sql
    session = connect
    odd = "#{@name} it's ?, :x, $1, %s, \\, é"
    [session.lock(odd), session.lock(@name, "#{odd}2"), session.campaign(odd, "me")].each do |hold|
      sql = hold.fence_sql
      refute_match(/[?:$%\\]/, sql)
      db.transaction { assert_equal hold.names.size.to_s, db.exec(sql).getvalue(0, 0) }
      forced = hold.is_a?(LockElection::Term) ? "force_resign" : "force_release_lock"
      PG.connect { |other| other.exec_params("SELECT #{forced}($1)", [hold.names.last]) }
      late = assert_raises(PG::Error) { db.transaction { db.exec(sql) } }
      assert_equal "LE001", late.result.error_field(PG::PG_DIAG_SQLSTATE)
      hold.release
      assert_raises(LockElection::LockLost) { hold.fence_sql }
    end
  end

  def test_other_errors
    hold = connect.lock(@name)
    assert_raises(PG::InFailedSqlTransaction) do
      db.transaction do
        assert_raises(PG::UndefinedTable) { db.exec("SELECT * FROM nothing") }
        hold.fence(db)
      end
    end
    other = PG.connect(dbname: "template1")
    @cleanup << -> { other.close }
    assert_raises(LockElection::NotInstalled) { other.transaction { hold.fence(other) } }
  end
end
