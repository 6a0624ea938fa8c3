# For test/lib/LeTrialCore.pm: builds the core as a shared library, so that a mutant needs one compilation and one link,
# and the unit tests and the simulator that use it. Without and with sanitizers, in $(OUT)/fast and $(OUT)/safe.
FLAGS      = -std=c11 -O2 -g -fno-omit-frame-pointer -Isrc -Isrc/server
FLAGS_fast = $(FLAGS)
FLAGS_safe = $(FLAGS) -fsanitize=address,undefined -fno-sanitize-recover=all
CORE       = $(patsubst src/core/%.c,%,$(sort $(wildcard src/core/*.c)))
UNIT       = $(patsubst test/unit/%.c,%,$(sort $(wildcard test/unit/*.c)))
SIM        = $(filter-out test/sim/fuzz.c,$(sort $(wildcard test/sim/*.c)))

.PHONY: all
define kind
all: $(OUT)/$(1)/sim $(UNIT:%=$(OUT)/$(1)/unit/%)
$(OUT)/$(1)/core/%.o: src/core/%.c $(wildcard src/core/*.h)
	@mkdir -p $$(@D)
	$(CC) $(FLAGS_$(1)) -fPIC -c -o $$@ $$<
$(OUT)/$(1)/libcore.so: $(CORE:%=$(OUT)/$(1)/core/%.o)
	$(CC) $(FLAGS_$(1)) -shared -o $$@ $$^
$(OUT)/$(1)/sim: $(SIM) $(OUT)/$(1)/libcore.so $(wildcard test/sim/*.h src/core/*.h)
	$(CC) $(FLAGS_$(1)) -o $$@ $(SIM) -L$(OUT)/$(1) -lcore
$(OUT)/$(1)/unit/%: test/unit/%.c $(OUT)/$(1)/libcore.so $(wildcard test/unit/*.h src/core/*.h)
	@mkdir -p $$(@D)
	$(CC) $(FLAGS_$(1)) -o $$@ $$< -L$(OUT)/$(1) -lcore
endef
$(foreach k,fast safe,$(eval $(call kind,$(k))))
# for LeTrialCore.pm
flags-%:
	@echo $(FLAGS_$*)
