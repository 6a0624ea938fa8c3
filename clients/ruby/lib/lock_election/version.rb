# frozen_string_literal: true

module LockElection
  VERSION = "1.0.0"
end
