/* Which incarnation a start takes: tokens go on upward whatever was lost. */
#include "fixture.h"

static int64_t
next(LeStart start)
{
	return le_next_incarnation(&start);
}

static void
test_one_server(void)
{
	is_int(next((LeStart){.stored = 5000, .minutes = 9000, .clean = true}), 5000,
		   "stopped in order: goes on counting");
	is_int(next((LeStart){.stored = 5000, .minutes = 9000}), 9000, "crashed: the minutes");
	is_int(next((LeStart){.stored = 9000, .minutes = 9000}), 9001, "twice in a minute: one more");
	is_int(next((LeStart){.stored = 9000, .minutes = 100}), 9001, "whatever the clock says");
	is_int(next((LeStart){.stored = 5000, .floor = 7001, .minutes = 100, .clean = true}), 7001,
		   "restored from a dump: at least what that had");
}

static void
test_promotion(void)
{
	int64_t old = 5000, lost, promoted;

	is_int(next((LeStart){.stored = 9000, .minutes = 100, .promoted = true}), (9000 / 64 + 2) * 64,
		   "promoted: past what the other one may have counted");
	is_int(next((LeStart){.stored = 9000, .minutes = 100, .promoted = true, .clean = true}),
		   (9000 / 64 + 2) * 64, "whatever mark it has found");

	/* the old primary starts anew, which nobody learns, and is replaced in the same minute */
	lost = next((LeStart){.stored = old, .minutes = 9000});
	promoted = next((LeStart){.stored = old, .minutes = 9000, .promoted = true});
	ok(promoted > lost + 60, "promoted: past a start in this very minute that was lost");
	ok(next((LeStart){.stored = promoted, .minutes = 9000, .promoted = true}) > promoted + 60,
	   "and once more");
}

int
main(void)
{
	test_one_server();
	test_promotion();
	return done_testing();
}
