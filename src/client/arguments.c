/*
 * arguments.c
 *		Are the arguments of a call what they may be?  An error says which one is
 *		not, what it is, and what is allowed.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

/* How many bytes the first character has; 0: they are no UTF-8. */
static size_t
utf8_length(const unsigned char *c)
{
	size_t length = c[0] < 0x80   ? 1
					: c[0] < 0xc2 ? 0
					: c[0] < 0xe0 ? 2
					: c[0] < 0xf0 ? 3
					: c[0] < 0xf5 ? 4
								  : 0;

	for (size_t i = 1; i < length; i++)
	{
		if ((c[i] & 0xc0) != 0x80)
			return 0;
	}
	/* a longer form of another character, a surrogate, or beyond U+10FFFF */
	if ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf0 && c[1] < 0x90) ||
		(c[0] == 0xf4 && c[1] > 0x8f))
		return 0;
	return length;
}

le_status
le_check_utf8(const char *what, const char *text, le_error *error)
{
	const unsigned char *c = (const unsigned char *) text;
	size_t length;

	while (*c != '\0')
	{
		length = utf8_length(c);
		if (length == 0)
			return le_error_set(error, LE_INVALID, "", "%s is not UTF-8: byte %d is 0x%02x", what,
								(int) (c - (const unsigned char *) text) + 1, *c);
		c += length;
	}
	return LE_OK;
}

static le_status
check_text(const char *what, const char *text, int max, le_error *error)
{
	if (text == NULL || text[0] == '\0')
		return le_error_set(error, LE_INVALID, "", "%s is %s: 1 to %d bytes are allowed", what,
							text == NULL ? "NULL" : "empty", max);
	if (strlen(text) > (size_t) max)
		return le_error_set(error, LE_INVALID, "", "%s has %zu bytes: 1 to %d are allowed", what,
							strlen(text), max);
	return le_check_utf8(what, text, error);
}

le_status
le_check_names(const char *const *names, int n, le_error *error)
{
	le_status status = LE_OK;
	char what[24];

	if (n < 1 || n > LE_NAMES_MAX)
		return le_error_set(error, LE_INVALID, "", "n is %d: 1 to %d names are allowed", n, LE_NAMES_MAX);
	if (names == NULL)
		return le_error_set(error, LE_INVALID, "", "names is NULL");
	for (int i = 0; i < n && status == LE_OK; i++)
	{
		snprintf(what, sizeof(what), "names[%d]", i);
		status = check_text(what, names[i], LE_NAME_MAX, error);
	}
	return status;
}

le_status
le_check_election(const char *election, le_error *error)
{
	return check_text("election", election, LE_NAME_MAX, error);
}

le_status
le_check_candidate(const char *candidate, le_error *error)
{
	return check_text("candidate", candidate, LE_CANDIDATE_MAX, error);
}

le_status
le_check_wait(int wait_ms, le_error *error)
{
	if (wait_ms >= -1)
		return LE_OK;
	return le_error_set(error, LE_INVALID, "", "wait_ms is %d: -1 (no limit), 0 and more are allowed",
						wait_ms);
}

le_status
le_check_how(const le_how *how, int n, le_error *error)
{
	if (how->permits < 0)
		return le_error_set(error, LE_INVALID, "", "how.permits is %d: 0 (no permit) and more are allowed",
							how->permits);
	if (how->permits > 0 && how->shared)
		return le_error_set(error, LE_INVALID, "",
							"how.permits is %d, and how.shared is set: only one of them is allowed",
							how->permits);
	if (how->permits > 0 && n != 1)
		return le_error_set(error, LE_INVALID, "", "how.permits is %d, and n is %d: a permit is of one name",
							how->permits, n);
	if (how->until < 0)
		return le_error_set(error, LE_INVALID, "",
							"how.until is %lld: 0 (no limit), and points of le_now() are allowed",
							(long long) how->until);
	return LE_OK;
}

/* A pointer that must not be NULL. */
le_status
le_check_pointer(const void *pointer, const char *what, le_error *error)
{
	if (pointer != NULL)
		return LE_OK;
	return le_error_set(error, LE_INVALID, "", "%s is NULL", what);
}
