# frozen_string_literal: true

module LockElection
  # Checks of arguments that the server does not see, or sees too late. Errors name the argument and the allowed values.
  module Arguments # :nodoc:
    TTL = (0.1..24 * 86_400)
    PERMITS = (1..2**31 - 1)

    module_function

    def wrong(what, value, allowed)
      shown = value.inspect
      shown = "#{shown[0, 200]}..." if shown.size > 200
      raise InvalidRequest, "#{what} is #{shown}: it must be #{allowed}"
    end

    # Returns a number of seconds, such as 5, 0.5 or 1.hour, as a Float.
    def seconds(what, value, range = (0..))
      number = value.is_a?(Numeric) && value.real? ? value.to_f : Float::NAN
      return number if range.cover?(number)

      wrong(what, value, "a number of seconds, #{range.begin} or more#{", at most #{range.end}" if range.end}")
    end

    def optional_seconds(what, value, range = (0..)) = value.nil? ? nil : seconds(what, value, range)

    def permits(value)
      value.is_a?(Integer) && PERMITS.cover?(value) ? value : wrong("permits", value, "an Integer from 1 to 2147483647")
    end

    # Returns a String or Symbol as a UTF-8 String. PostgreSQL would cut a text at a NUL.
    def text(what, value)
      wrong(what, value, "a String") unless value.is_a?(String) || value.is_a?(Symbol)
      text = value.to_s.encode(Encoding::UTF_8)
      text.valid_encoding? && !text.include?("\0") ? text : wrong(what, value, "valid UTF-8 without a NUL")
    rescue EncodingError
      wrong(what, value, "a text that UTF-8 can encode")
    end

    def name(value, what = "name")
      name = text(what, value)
      name.empty? ? wrong(what, value, "not empty") : name
    end

    def names(values)
      values = values.flatten(1)
      values.empty? ? wrong("names", values, "at least one name") : values.map { |value| name(value) }
    end

    def callable(what, value)
      value.nil? || value.respond_to?(:call) ? value : wrong(what, value, "something to call")
    end
  end
  private_constant :Arguments
end
