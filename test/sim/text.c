/*
 * text.c
 *		Names, owners and values as numbered texts of many lengths.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define DIGITS 4

typedef struct Texts
{
	char data[MAX_NAMES][LE_MAX_NAME + 1];
	uint32_t len[MAX_NAMES];
} Texts;

static Texts names;

static void
make_texts(void)
{
	for (int i = 0; i < MAX_NAMES; i++)
	{
		uint32_t len = DIGITS + (uint32_t) (i % 7 == 0 ? i * 3 % 251 : i % 13);

		memset(names.data[i], 'a' + i % 26, sizeof(names.data[i]));
		snprintf(names.data[i], sizeof(names.data[i]), "%04d", i);
		names.data[i][DIGITS] = (char) ('a' + i % 26);
		names.len[i] = len;
	}
}

static LeText
text(int id)
{
	LeText t = {NULL, 0};

	if (names.len[0] == 0)
		make_texts();
	if (id >= 0)
	{
		t.data = names.data[id % MAX_NAMES];
		t.len = names.len[id % MAX_NAMES];
	}
	return t;
}

LeText
sim_name(int id)
{
	return text(id);
}

LeText
sim_owner(int id)
{
	return text(id);
}

LeText
sim_value(int id)
{
	return text(id);
}

int
sim_text_id(const char *data)
{
	int id = 0;

	if (data == NULL)
		return -1;
	for (int i = 0; i < DIGITS; i++)
		id = id * 10 + (data[i] - '0');
	return id;
}

const char *
sim_command_name(LeCommandType type)
{
	static const char *const text_of[] = {
		"?",           "acquire",    "await",       "renew",       "release",     "check",        "force",
		"evict",       "proclaim",   "set_permits", "grant_lease", "keep_alive",  "revoke_lease", "lease_ttl",
		"lease_holds", "force_role", "advance",     "undo",        "session_end", "fence_ended"};

	return text_of[type];
}

const char *
sim_status_name(LeStatus status)
{
	static const char *const text_of[] = {"ok",
										  "waiting",
										  "not granted",
										  "not held",
										  "lost",
										  "queued",
										  "denied",
										  "bad mode",
										  "bad permits",
										  "bad upgrade",
										  "bad group",
										  "bad ttl",
										  "no lease",
										  "too many locks",
										  "too many leases",
										  "too much memory",
										  "too many waiters",
										  "too many holds",
										  "bound"};

	return text_of[status];
}
