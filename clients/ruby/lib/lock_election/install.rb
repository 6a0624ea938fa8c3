# frozen_string_literal: true

module LockElection
  # The schema's comment names the installed version, which is current if the script has the same comment.
  INSTALLED = "SELECT pg_catalog.obj_description(n.oid, 'pg_namespace') FROM pg_catalog.pg_namespace n " \
              "WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election'"
  private_constant :INSTALLED

  # Returns the SQL that install() runs, for tools such as migrations, which must run it in one transaction.
  def self.install_script = File.read(File.join(__dir__, "lock_election.sql"), encoding: Encoding::UTF_8)

  # Installs or upgrades the portable edition of lock_election, which has no C code, in one transaction.
  #
  # If this version is already installed, does nothing and needs no privilege. Otherwise the role needs CREATE on the
  # database. It becomes the owner of all locks, so it should not be the application's role.
  #
  # connection:: a PG::Connection without an open transaction
  # schema::     the schema for the functions, created if missing; nil = the first schema of search_path. An edition
  #              that is already installed stays in its schema
  # grant::      the role that may use the schema; nil = all roles may use a schema that this call creates
  #
  # Raises AccessDenied if the role lacks CREATE or another role has installed the edition, InvalidRequest if a
  # transaction is open or there is no schema, Unavailable on a standby, and ServerError if a newer version or the
  # extension is installed. Raises OutcomeUnknown if the outcome is not known; the call can be repeated.
  def self.install(connection, schema: nil, grant: nil)
    unless connection.is_a?(PG::Connection)
      raise InvalidRequest, "connection is of class #{connection.class}: it must be a PG::Connection"
    end
    if connection.transaction_status != PG::PQTRANS_IDLE
      raise InvalidRequest, "the connection has an open transaction: the installation requires its own"
    end

    begin
      connection.exec("BEGIN ISOLATION LEVEL READ COMMITTED")
      install_in_transaction(connection, schema.to_s, grant.to_s)
      connection.exec("COMMIT")
    ensure
      connection.exec("ROLLBACK") unless [PG::PQTRANS_IDLE, PG::PQTRANS_UNKNOWN].include?(connection.transaction_status)
    end
    nil
  rescue PG::Error => e
    raise OutcomeUnknown, "no answer: #{e.message.strip}" if e.result.nil?

    fields = [PG::PG_DIAG_SQLSTATE, PG::PG_DIAG_MESSAGE_PRIMARY, PG::PG_DIAG_MESSAGE_HINT]
    raise error_of(*fields.map { |field| e.result.error_field(field) })
  end

  def self.install_in_transaction(connection, schema, grant)
    script = install_script
    comment = connection.exec(INSTALLED).column_values(0).first
    return if comment && script.include?(comment)

    connection.exec_params("SELECT pg_catalog.set_config('_lock_election.schema', $1, true), " \
                           "pg_catalog.set_config('_lock_election.grant', $2, true)", [schema, grant])
    connection.exec(script)
  end
  private_class_method :install_in_transaction
end
