# lock_election: distributed locks and leader election inside PostgreSQL
#
#   make && make install [PG_CONFIG=/path/to/pg_config]
#   make installcheck      regression and isolation tests against the running server that libpq's variables name
#   make check-fast        in a minute: test/tidy, the unit tests, a short simulation, and the tests that find most
#   make test              everything, in a throw-away cluster; installs what it needs
#   make test TESTS=test/t/010_x.t [PROVE_FLAGS=-v]
#   make soak              the same, with five times as much of the random searches (simulator, torture, fuzzing, abuse)
#   make demo              sessions side by side; make play: the same server, to try by hand
#   make test-versions-clients      each library with the oldest and newest drivers, frameworks and languages
#   make test-versions     demo and test on fresh Debians, with PostgreSQL 15 to 19; needs root
#   make bench [PEERS=install]      beside etcd, ZooKeeper, Redis and others, to bench/results; make bench-quick: alone;
#                                   make bench-scaling: the curves of docs/operation/scaling.md;
#                                   make bench-instructions: counted by callgrind; make bench-lockctl: the command
#                                   beside etcdctl and flock;
#                                   make bench-libraries [PEERS=install]: libraries beside others, to build/bench
#   make bad-night         records and plots the failures of docs/operation/watching.md
#   make LE_FAULTS=1       a build for tests, with fault points and assertions
#   make LE_ASSERTS=1      a build with assertions only
#   make torture [DURATION=60]     clients and faults, and a checker of the clients' records
#   make torture-lockctl [DURATION=60]      the same with commands that lockctl runs
#   make test-ha           three nodes under Patroni, with failures: half an hour
#   make reference         generates the pages of docs/reference from the catalog; make client-table: the one from
#                          clients/conformance/recorded.json
#   make mutants [ONLY="name ..."]      seeds faults, each of which a test has to catch
#   make mutants-random [N=100] [SEED=1] [WHERE=core|server|client|lockctl|portable]      faults that a machine chooses;
#                                   how many survive.  make mutants-coverage: records which tests reach which line, for
#                                   that
#   make unit, make sim [SEED=1] [STEPS=100000]      the core alone, no PostgreSQL needed
#   make sim-exhaustive        every interleaving of tiny worlds: an hour
#   make client, make lockctl, make install-client [PREFIX=/usr/local] [DESTDIR=]      the C library, needs libpq;
#                                   and the command, also needs ncurses; man pages if scdoc is installed
#   make uninstall, make uninstall-client [PREFIX=..]       remove what was installed with the same variables
#   make fuzz [SECONDS=60]     the same simulator, driven by libFuzzer
#   make deb               Debian packages, for each major version whose postgresql-server-dev-NN is installed
#   make test-packages [SUITES="bookworm sid"]      builds, checks, installs, upgrades and removes them in fresh
#                                   systems; as root
#   make test-containers [SUITE=bookworm]    the image of container/Dockerfile, and compose.yaml, under Podman; as root
#   make test-platforms [PARTS="arm64 s390x musl"]      on other processors, under QEMU, and with musl; as root
#   make home URL=https://.. MAIL=.. [GO=..]     replaces the placeholders for the project's address
#   make dist [DIST_TAG=v1.0.0]    the archives of a release, reproducible
#   make fuzz-sql [SECONDS=600]    all functions with random arguments, on a live server
#   make clients [CLIENTS="python go java node ruby rust"]      the packages of the clients, into build/clients
#   make test-clients [PARTS="conformance python go java node ruby rust php"] [CLIENTS="c python go"]
#                                   all clients with the same scenarios; and each client's own tests
#   make site, make test-site      the documents as a site, in build/site; checks it in a browser
#   make abuse [SECONDS=600]       a hostile role with all attacks at once, and its effect on others

EXTENSION  = lock_election
MODULE_big = lock_election
PGFILEDESC = "lock_election - distributed locks and leader election"
# One place for the version of the library and of its SQL.
LE_VERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" lock_election.control)
# The version of a release is that of the SQL and a third number, for releases that change no SQL; also of the client
# library and lockctl.
DIST_VERSION := $(shell sed -n '1,/"provides"/s/^[[:space:]]*"version": "\(.*\)",/\1/p' META.json)
DATA       = $(wildcard sql/lock_election--*.sql)
SOURCES    = $(sort $(wildcard src/core/*.c src/server/*.c src/server/*/*.c))
OBJS       = $(patsubst %.c,%.o,$(filter-out $(if $(LE_FAULTS),,%/fault.c %/fault_worker.c %/core/check.c),$(SOURCES)))

# The server's headers have unused parameters and compare signed with unsigned in inline functions and macros.
# Before 16 they leave PGDLLEXPORT empty, which would hide the module's entry points.
# Errors for developers (make WERROR=1) and CI; not where another compiler warns of something else.
WARNINGS    = -Wall -Wextra $(if $(WERROR)$(CI),-Werror)
PG_CFLAGS   = -std=gnu11 $(WARNINGS) -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers \
              -fvisibility=hidden
# The server's headers and its flags are gcc's.
ifneq ($(findstring clang,$(CC)),)
PG_CFLAGS  += -Wno-ignored-attributes -Wno-unknown-warning-option -Wno-ignored-optimization-argument
endif
PG_CPPFLAGS = -Isrc -Isrc/server -DPGDLLEXPORT='__attribute__((visibility("default")))' -MMD -MP \
              -DLE_VERSION='"$(LE_VERSION)"' -DLE_RELEASE='"$(DIST_VERSION)"'

# pg_regress finds sql/ and expected/ here; pg_isolation_regress finds both of its folders by links in its own.
REGRESS        = $(patsubst sql/%.sql,%,$(sort $(filter-out $(DATA),$(wildcard sql/*.sql))))
REGRESS_OPTS   = --inputdir=. --outputdir=build/regress --load-extension=$(EXTENSION)
ISOLATION      = $(patsubst test/specs/%.spec,%,$(sort $(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=build/isolation --outputdir=build/isolation --load-extension=$(EXTENSION)
EXTRA_CLEAN    = build $(OBJS:.o=.d)

# No bitcode: it needs a clang of the very version that built the server.
override with_llvm = no

PG_CONFIG ?= pg_config

.DEFAULT_GOAL := all

# These goals work before PostgreSQL is installed.
ALONE := help check-fast test soak demo play reference client-table test-versions bench bench-quick bench-scaling \
         bench-instructions bench-libraries bench-lockctl bad-night mutants mutants-random mutants-coverage unit sim \
         sim-exhaustive fuzz fuzz-sql abuse core-tests torture torture-lockctl torture-programs test-ha format \
         format-check client install-client uninstall-client client-tests client-tests-address client-tests-thread \
         test-clients test-versions-clients portable clients lockctl lockctl-address man-pages deb test-packages \
         test-containers test-platforms home dist site test-site
.PHONY: $(ALONE)

help:
	@sed -n '1,2d; /^#/!q; s/^# \{0,1\}//p' Makefile

test:
	@test/run.sh

# The loop of edit and test.
check-fast:
	@SIM_SECONDS=3 TESTS="$$(grep -v '^#' test/lib/fast)" test/run.sh

soak:
	@SOAK=1 test/run.sh

demo:
	@test/demo.sh

play:
	@test/play.sh

reference:
	@test/reference.sh

client-table:
	@mkdir -p build
	@clients/conformance/table.py >build/clients.md
	@mv build/clients.md docs/reference/clients.md

site:
	@docs/site/build.sh

test-site:
	@docs/site/build.sh test

test-versions:
	@test/versions.sh

bench:
	@bench/run.sh

bench-quick:
	@bench/quick.sh

bench-scaling:
	@bench/scaling.sh

bench-instructions:
	@bench/instructions.sh

bench-libraries:
	@bench/libraries.sh

bench-lockctl:
	@bench/lockctl.sh

bad-night:
	@bench/bad-night.sh

test-versions-clients:
	@clients/versions.sh

test-clients:
	@clients/test.sh

# The portable edition, of its parts; Go embeds what is in the module's own folder alone.
portable:
	@sql/portable/assemble --write

clients:
	@clients/build.sh

DURATION ?= 60
torture:
	@TESTS=test/t/090_torture.t TORTURE_SECONDS=$(DURATION) TORTURE_P99=$${TORTURE_P99:-20} PROVE_FLAGS=-v test/run.sh

test-ha:
	@TESTS="$${TESTS:-test/ha/steps.t test/ha/ha.t}" PROVE_FLAGS="-v -j1" test/run.sh

torture-lockctl:
	@TESTS=test/t/127_lockctl_torture.t TORTURE_SECONDS=$(DURATION) PROVE_FLAGS=-v test/run.sh

mutants:
	@test/mutants/run.sh

mutants-random:
	@N="$(or $(N),100)" SEED="$(SEED)" WHERE="$(or $(WHERE),core)" test/mutants/random.sh

mutants-coverage:
	@test/mutants/coverage.sh

fuzz-sql:
	@TESTS=test/t/141_fuzz_sql.t FUZZ_SECONDS=$(or $(SECONDS),600) PROVE_FLAGS=-v test/run.sh

abuse:
	@TESTS=test/t/142_abuse_together.t ABUSE_SECONDS=$(or $(SECONDS),600) ABUSE_FACTOR=$${ABUSE_FACTOR:-2} \
		PROVE_FLAGS=-v test/run.sh

# debian/control is made from control.in, which does not know the major versions.
DEB_NEEDS = build-essential debhelper libncurses-dev libpq-dev pkgconf postgresql-server-dev-all scdoc
deb:
	@command -v pg_buildext >/dev/null || { echo "install first: $(DEB_NEEDS)" >&2; exit 1; }
	rm -rf build/deb
	mkdir -p build/deb/lock-election
	tar --exclude=./.git --exclude=./build --exclude='*.o' --exclude='*.d' --exclude='*.so' -cf - . | \
		tar -C build/deb/lock-election -xf -
	cd build/deb/lock-election && export PG_SUPPORTED_VERSIONS="$${PG_SUPPORTED_VERSIONS:-installed}" && \
		pg_buildext updatecontrol && unset MAKEFLAGS MFLAGS MAKELEVEL && dpkg-buildpackage -us -uc -b
	@ls build/deb/*.deb

test-packages:
	@test/packages.sh $(SUITES)

test-containers:
	@test/containers.sh

test-platforms:
	@test/platforms.sh

home:
	@test/lib/home "$(URL)" "$(MAIL)" "$(GO)"

DIST_TAG     ?= v$(DIST_VERSION)
DIST          = lock_election-$(DIST_VERSION)
DIST_ARCHIVE  = TZ=UTC git -c tar.umask=0022 archive --prefix=$(DIST)/
dist:
	mkdir -p build
	$(DIST_ARCHIVE) --format=zip -9 -o build/$(DIST).zip $(DIST_TAG)
	$(DIST_ARCHIVE) --format=tar -o build/$(DIST).tar $(DIST_TAG)
	gzip -9nf build/$(DIST).tar
	cd build && sha256sum $(DIST).zip $(DIST).tar.gz

ifneq ($(filter-out $(ALONE),$(or $(MAKECMDGOALS),all)),)

PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq ($(PGXS),)
$(error $(PG_CONFIG) not found: install postgresql-server-dev-15 or newer, or set PG_CONFIG)
endif
# libpq-dev has a pg_config, too, and the server's package has one without headers.
ifeq ($(wildcard $(shell $(PG_CONFIG) --includedir-server)/postgres.h),)
$(error $(PG_CONFIG) is of $(shell $(PG_CONFIG) --version), whose headers are not here: install \
	postgresql-server-dev-$(firstword $(shell $(PG_CONFIG) --version | tr -cs '0-9\n' ' ')))
endif
# As the server's own: a broken assertion must not take down a cluster that is not built for them.  Only builds for
# tests have them in every server.
ifneq ($(LE_FAULTS)$(LE_ASSERTS),)
PG_CPPFLAGS += $(if $(LE_FAULTS),-DLE_FAULTS) -DUSE_ASSERT_CHECKING
else ifeq ($(findstring --enable-cassert,$(shell $(PG_CONFIG) --configure)),)
PG_CPPFLAGS += -DNDEBUG
endif
include $(PGXS)

# Objects that another PostgreSQL or other flags have left behind are built anew.
STAMP := $(LE_VERSION) $(DIST_VERSION) PostgreSQL $(VERSION) $(CC) $(CFLAGS) $(if $(LE_FAULTS),faults) \
	$(if $(LE_ASSERTS),assertions)
$(shell mkdir -p build; echo '$(STAMP)' | cmp -s - build/stamp || echo '$(STAMP)' >build/stamp)
$(OBJS): build/stamp
build/stamp: ;
-include $(OBJS:.o=.d)

# The portable edition, and the moves to and from it: beside the extension's own scripts, in a folder of their own.
PORTABLE     = $(addprefix sql/portable/,lock_election.sql to_extension.sql from_extension.sql)
PORTABLE_DIR = $(DESTDIR)$(datadir)/extension/$(EXTENSION)
.PHONY: install-portable uninstall-portable
install: install-portable
install-portable:
	$(MKDIR_P) '$(PORTABLE_DIR)'
	$(INSTALL_DATA) $(PORTABLE) '$(PORTABLE_DIR)/'
uninstall: uninstall-portable
uninstall-portable:
	rm -f $(addprefix '$(PORTABLE_DIR)'/,$(notdir $(PORTABLE)))
	[ ! -d '$(PORTABLE_DIR)' ] || rmdir --ignore-fail-on-non-empty '$(PORTABLE_DIR)'

installcheck: | build/regress build/isolation
build/regress:
	mkdir -p $@
build/isolation:
	mkdir -p $@
	ln -s ../../test/specs $@/specs
	ln -s ../../expected $@/expected

endif

# The core and its tests: plain C11 under sanitizers. SANITIZE= builds without, for long simulator runs.
SEED       ?= 1
STEPS      ?= 100000
SANITIZE   ?= -fsanitize=address,undefined -fno-sanitize-recover=all
CORE_FLAGS  = -std=c11 -g -O2 -fno-omit-frame-pointer $(WARNINGS) $(SANITIZE) -Isrc -MMD -MP
CORE_OBJS   = $(patsubst src/core/%.c,build/core/%.o,$(sort $(wildcard src/core/*.c)))
SIM_SOURCES = $(filter-out test/sim/fuzz.c,$(sort $(wildcard test/sim/*.c)))
SIM_OBJS    = $(patsubst test/sim/%.c,build/sim.d/%.o,$(SIM_SOURCES))
UNIT_PROGS  = $(patsubst test/unit/%.c,build/unit/%,$(sort $(wildcard test/unit/*.c)))
SIM_PROG    = $(if $(SIM_OBJS),build/sim)

ifneq ($(filter unit sim core-tests build/%,$(MAKECMDGOALS)),)
CORE_STAMP := $(CC) $(CORE_FLAGS)
$(shell mkdir -p build/core build/unit build/sim.d; \
	echo '$(CORE_STAMP)' | cmp -s - build/core/stamp || echo '$(CORE_STAMP)' >build/core/stamp)
-include $(CORE_OBJS:.o=.d) $(SIM_OBJS:.o=.d) $(UNIT_PROGS:=.d)
endif

build/core/stamp: ;
build/core/%.o: src/core/%.c build/core/stamp
	$(CC) $(CORE_FLAGS) -c -o $@ $<
build/sim.d/%.o: test/sim/%.c build/core/stamp
	$(CC) $(CORE_FLAGS) -c -o $@ $<
build/sim: $(SIM_OBJS) $(CORE_OBJS)
	$(CC) $(SANITIZE) -o $@ $^
build/unit/%: test/unit/%.c $(CORE_OBJS) build/core/stamp
	$(CC) $(CORE_FLAGS) -Isrc/server -MT $@ -o $@ $< $(CORE_OBJS)

# For LD_PRELOAD: a server with another time of day, or with a disk that stops; a kernel without IPv6, or one that
# refuses a call.
build/clock.so: test/lib/clock.c
build/ipv4.so: test/lib/ipv4.c
build/refuse.so: test/lib/refuse.c
build/stall.so: test/lib/stall.c
build/clock.so build/ipv4.so build/refuse.so build/stall.so:
	$(CC) -shared -fPIC -O2 $(WARNINGS) -o $@ $< -ldl

# A process whose first thread has ended, for lockctl.
build/headless: test/lib/headless.c
	$(CC) -std=c11 -O2 -pthread $(WARNINGS) -o $@ $<

core-tests: $(UNIT_PROGS) $(SIM_PROG) build/sim-fast

# The clients and the checker of the torture test, under sanitizers whatever the rest is built with.
TORTURE_FLAGS = -std=c11 -g -O2 -fno-omit-frame-pointer $(WARNINGS) -fsanitize=address,undefined \
                -fno-sanitize-recover=all
CHECK_SOURCES = $(addprefix test/torture/,check.c history.c claims.c rules.c handoffs.c)
build/torture/client: $(wildcard test/torture/chance.[ch] test/torture/record.[ch]) test/torture/client.c
	mkdir -p $(@D)
	$(CC) $(TORTURE_FLAGS) -I$(shell pg_config --includedir) -o $@ $(filter %.c,$^) -L$(shell pg_config --libdir) -lpq
build/torture/check: $(CHECK_SOURCES) test/torture/check.h
	mkdir -p $(@D)
	$(CC) $(TORTURE_FLAGS) -o $@ $(CHECK_SOURCES)
build/torture/worker: test/torture/worker.c
	mkdir -p $(@D)
	$(CC) $(TORTURE_FLAGS) -o $@ $<
torture-programs: build/torture/client build/torture/check build/torture/worker

# liblockelection, the client in C. Its tests are built with a copy of it of their own, plain or under a sanitizer.
PREFIX        ?= /usr/local
LIBDIR        ?= $(PREFIX)/lib
CLIENT_DIR     = build/client
CLIENT_VERSION = $(DIST_VERSION)
CLIENT_SONAME  = liblockelection.so.1
CLIENT_LIB     = $(CLIENT_DIR)/liblockelection.so.$(CLIENT_VERSION)
CLIENT_PQ     ?= $(shell pkg-config --cflags libpq 2>/dev/null || echo -I$$(pg_config --includedir))
CLIENT_PQ_LIBS ?= $(shell pkg-config --libs libpq 2>/dev/null || echo -L$$(pg_config --libdir) -lpq)
# It does not refer to libpq.pc, which from PostgreSQL 18 on asks for libraries that Debian's libpq-dev does not bring.
CLIENT_PC      = sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(CLIENT_VERSION)|; \
                 s|@PQ_CFLAGS@|$(CLIENT_PQ)|; s|@PQ_LIBS@|$(CLIENT_PQ_LIBS)|'
CLIENT_FLAGS   = -std=c11 -D_GNU_SOURCE -g -O2 -fno-omit-frame-pointer -pthread $(WARNINGS) $(CLIENT_PQ) -Isrc/client \
                 -I$(CLIENT_DIR) -DLE_RELEASE='"$(CLIENT_VERSION)"' -MMD -MP
CLIENT_NAMES   = $(patsubst src/client/%.c,%,$(sort $(wildcard src/client/*.c)))
CLIENT_TESTS   = $(patsubst test/client/%.c,%,$(sort $(wildcard test/client/*.c)))
SCDOC         ?= $(shell command -v scdoc)
CLIENT_PAGES   = $(patsubst src/client/man/%.scd,%,$(wildcard src/client/man/*.scd))
CLIENT_MAN     = $(if $(SCDOC),$(CLIENT_PAGES:%=$(CLIENT_DIR)/%))
SANITIZE_plain   =
SANITIZE_address = -fsanitize=address,undefined -fno-sanitize-recover=all
SANITIZE_thread  = -fsanitize=thread

client: $(CLIENT_LIB) $(CLIENT_DIR)/liblockelection.a $(CLIENT_DIR)/liblockelection.pc $(CLIENT_MAN) man-pages
man-pages:
	$(if $(SCDOC),@:,@echo "no man pages: scdoc is not installed")

$(CLIENT_DIR)/lib/%.o: src/client/%.c
	@mkdir -p $(@D)
	$(CC) $(CLIENT_FLAGS) -fPIC -fvisibility=hidden $(CFLAGS) -c -o $@ $<
# It tells the version.
$(CLIENT_DIR)/lib/error.o $(foreach kind,plain address thread,$(CLIENT_DIR)/$(kind)/lib/error.o): META.json
# It carries the portable edition.
$(CLIENT_DIR)/lib/install.o $(foreach kind,plain address thread,$(CLIENT_DIR)/$(kind)/lib/install.o): \
	$(CLIENT_DIR)/portable.inc
$(CLIENT_DIR)/portable.inc: sql/portable/lock_election.sql
	@mkdir -p $(@D)
	sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $< >$@
$(CLIENT_LIB): $(CLIENT_NAMES:%=$(CLIENT_DIR)/lib/%.o) src/client/symbols.map
	$(CC) -shared -pthread -Wl,-soname,$(CLIENT_SONAME) -Wl,--version-script=src/client/symbols.map -Wl,-z,defs \
		$(LDFLAGS) \
		-o $@ $(filter %.o,$^) $(CLIENT_PQ_LIBS)
	ln -sf $(@F) $(CLIENT_DIR)/$(CLIENT_SONAME)
	ln -sf $(CLIENT_SONAME) $(CLIENT_DIR)/liblockelection.so
$(CLIENT_DIR)/liblockelection.a: $(CLIENT_NAMES:%=$(CLIENT_DIR)/lib/%.o)
	rm -f $@
	$(AR) rcs $@ $^
$(CLIENT_DIR)/liblockelection.pc: src/client/liblockelection.pc.in Makefile META.json
	@mkdir -p $(@D)
	$(CLIENT_PC) $< >$@
$(CLIENT_DIR)/%: src/client/man/%.scd
	@mkdir -p $(@D)
	$(SCDOC) <$< >$@

install-client: client lockctl
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/man/man3
	install -m 755 $(CLIENT_LIB) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(CLIENT_LIB)) $(DESTDIR)$(LIBDIR)/$(CLIENT_SONAME)
	ln -sf $(CLIENT_SONAME) $(DESTDIR)$(LIBDIR)/liblockelection.so
	install -m 644 $(CLIENT_DIR)/liblockelection.a $(DESTDIR)$(LIBDIR)
	$(CLIENT_PC) src/client/liblockelection.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/liblockelection.pc
	install -m 644 src/client/lock_election.h $(DESTDIR)$(PREFIX)/include
	$(if $(CLIENT_MAN),install -m 644 $(CLIENT_MAN) $(DESTDIR)$(PREFIX)/share/man/man3)
	install -D -m 755 build/lockctl/lockctl $(DESTDIR)$(PREFIX)/bin/lockctl
	install -D -m 644 src/lockctl/lockctl.bash \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/lockctl
	$(if $(LOCKCTL_MAN),install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(LOCKCTL_MAN))

# All that install-client may have installed, with the same PREFIX, LIBDIR and DESTDIR; folders stay.
uninstall-client:
	rm -f $(addprefix $(DESTDIR)$(LIBDIR)/,$(notdir $(CLIENT_LIB)) $(CLIENT_SONAME) liblockelection.so \
		liblockelection.a pkgconfig/liblockelection.pc)
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,include/lock_election.h bin/lockctl \
		share/bash-completion/completions/lockctl $(CLIENT_PAGES:%=share/man/man3/%) \
		$(LOCKCTL_PAGES:%=share/man/man1/%))

# What test/client/failing_calls.c lets fail: these calls of the library go to its __wrap_ functions.
FAILING_CALLS = malloc calloc realloc pipe2 pthread_create pthread_mutex_init pthread_cond_init \
                pthread_condattr_init getentropy poll read write PQconnectStartParams PQconninfo \
                PQconninfoParse PQsetnonblocking PQsendQuery PQsendQueryParams PQsendPrepare PQsendQueryPrepared \
                PQflush PQconsumeInput PQgetResult PQexecParams
$(CLIENT_DIR)/%/failing_calls: CLIENT_WRAP = $(FAILING_CALLS:%=-Wl,--wrap=%)
# What test/client/turns.c has instead of a server and of memory, and between the steps of a runner.
$(CLIENT_DIR)/%/turns: CLIENT_WRAP = -Wl,--wrap=le_sync -Wl,--wrap=le_hold_alloc -Wl,--wrap=le_enqueue_candidate
# What waits for a second at most otherwise.
$(CLIENT_DIR)/%/corners: CLIENT_WRAP = -Wl,--wrap=le_cond_wait
# build/client/KIND/NAME is test/client/NAME.c with the library, both under the sanitizer of that kind.
define client_kind
$(CLIENT_DIR)/$(1)/lib/%.o: src/client/%.c
	@mkdir -p $$(@D)
	$$(CC) $$(CLIENT_FLAGS) $$(SANITIZE_$(1)) -c -o $$@ $$<
$(CLIENT_DIR)/$(1)/%: test/client/%.c $(CLIENT_NAMES:%=$(CLIENT_DIR)/$(1)/lib/%.o)
	$$(CC) $$(CLIENT_FLAGS) $$(SANITIZE_$(1)) -MT $$@ $$(CLIENT_WRAP) -o $$@ $$(filter %.c %.o,$$^) $$(CLIENT_PQ_LIBS)
endef
$(foreach kind,plain address thread,$(eval $(call client_kind,$(kind))))
client-tests: $(CLIENT_TESTS:%=$(CLIENT_DIR)/plain/%)
client-tests-address: $(CLIENT_TESTS:%=$(CLIENT_DIR)/address/%)
client-tests-thread: $(CLIENT_TESTS:%=$(CLIENT_DIR)/thread/%)
.SECONDARY: $(foreach kind,plain address thread,$(CLIENT_NAMES:%=$(CLIENT_DIR)/$(kind)/lib/%.o))
ifneq ($(filter client install-client client-% build/client%,$(MAKECMDGOALS)),)
-include $(wildcard $(CLIENT_DIR)/lib/*.d $(CLIENT_DIR)/*/*.d $(CLIENT_DIR)/*/lib/*.d)
endif

# Its agent for the conformance suite of the clients, which needs jansson; LE_AGENT_KIND=address: under that sanitizer.
AGENT_LIB = $(CLIENT_DIR)/$(if $(LE_AGENT_KIND),$(LE_AGENT_KIND)/lib/%.o,liblockelection.a)
build/conformance/agent_c: clients/conformance/agent_c.c $(sort $(CLIENT_NAMES:%=$(AGENT_LIB)))
	@mkdir -p $(@D)
	$(CC) $(CLIENT_FLAGS) $(SANITIZE_$(LE_AGENT_KIND)) -o $@ $^ $(CLIENT_PQ_LIBS) -ljansson

# lockctl, the command, with the library in it.
LOCKCTL_OBJS = $(patsubst src/lockctl/%.c,build/lockctl/%.o,$(sort $(wildcard src/lockctl/*.c)))
LOCKCTL_PAGES = $(patsubst src/lockctl/man/%.scd,%,$(wildcard src/lockctl/man/*.scd))
LOCKCTL_MAN   = $(if $(SCDOC),$(LOCKCTL_PAGES:%=build/lockctl/%))
NCURSES_LIBS ?= $(shell pkg-config --libs ncursesw 2>/dev/null || echo -lncursesw -ltinfo)

lockctl: build/lockctl/lockctl $(LOCKCTL_MAN) man-pages
build/lockctl/%.o: src/lockctl/%.c
	@mkdir -p $(@D)
	$(CC) $(CLIENT_FLAGS) $(CFLAGS) -c -o $@ $<
build/lockctl/lockctl: $(LOCKCTL_OBJS) $(CLIENT_DIR)/liblockelection.a
	$(CC) -pthread $(LDFLAGS) -o $@ $^ $(CLIENT_PQ_LIBS) $(NCURSES_LIBS) -lm
build/lockctl/%: src/lockctl/man/%.scd
	@mkdir -p $(@D)
	$(SCDOC) <$< >$@
# The one that most tests run: with the library, both under AddressSanitizer.  Not optimised: all variables stay in the
# stack until a function returns, so that what is in use when the program exits within it is not taken for a leak.
build/lockctl/address/%.o: src/lockctl/%.c
	@mkdir -p $(@D)
	$(CC) $(CLIENT_FLAGS) -O0 $(SANITIZE_address) -c -o $@ $<
build/lockctl/address/lockctl: $(LOCKCTL_OBJS:build/lockctl/%=build/lockctl/address/%) \
		$(CLIENT_NAMES:%=$(CLIENT_DIR)/address/lib/%.o)
	$(CC) -pthread $(SANITIZE_address) -o $@ $^ $(CLIENT_PQ_LIBS) $(NCURSES_LIBS) -lm
lockctl-address: build/lockctl/address/lockctl
ifneq ($(filter lockctl% install-client build/lockctl%,$(MAKECMDGOALS)),)
-include $(wildcard build/lockctl/*.d build/lockctl/address/*.d $(CLIENT_DIR)/address/lib/*.d)
endif

unit: $(UNIT_PROGS)
	$(if $(UNIT_PROGS),prove --norc --exec '' $(UNIT_PROGS))

sim: build/sim
	build/sim --seed $(SEED) --steps $(STEPS)

# Thirty-two million runs.
sim-exhaustive: build/sim-fast
	build/sim-fast --exhaustive

# Without sanitizers, several times as fast.
build/sim-fast: $(SIM_SOURCES) $(wildcard src/core/*.[ch] test/sim/*.h)
	@mkdir -p build
	$(CC) -std=c11 -g -O2 $(WARNINGS) -Isrc -o $@ $(SIM_SOURCES) $(sort $(wildcard src/core/*.c))

SECONDS ?= 60
fuzz:
	@test/fuzz.sh $(SECONDS)

FUZZ_CC      ?= clang-14
FUZZ_SOURCES  = $(sort $(wildcard src/core/*.c)) $(filter-out test/sim/main.c,$(sort $(wildcard test/sim/*.c)))
build/fuzz: $(FUZZ_SOURCES) $(wildcard src/core/*.h test/sim/*.h)
	$(FUZZ_CC) -std=c11 -g -O2 -fno-omit-frame-pointer -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
		-Isrc -o $@ $(FUZZ_SOURCES)

FORMATTED = $(sort $(wildcard src/*/*.[ch] src/*/*/*.[ch] test/sim/*.[ch] test/torture/*.[ch] test/unit/*.[ch] \
              test/client/*.[ch] clients/*/*.[ch] examples/*.c bench/peers/*.[ch]))
# The version that .clang-format is written for; others lay out some lines differently.
CLANG_FORMAT ?= clang-format-14
format-tool:
	@$(CLANG_FORMAT) --version 2>/dev/null | grep -q 'version 14\.' || \
		{ echo "install clang-format-14 first, or set CLANG_FORMAT" >&2; exit 1; }
format: format-tool
	@$(CLANG_FORMAT) -i $(FORMATTED)
format-check: format-tool
	@$(CLANG_FORMAT) --dry-run -Werror $(FORMATTED)
