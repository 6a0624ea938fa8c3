/*
 * arguments.c
 *		Checks the arguments of calls.  An error names the wrong argument, its
 *		value, and the allowed values.
 */
#include "arguments.h"

#include <stdio.h>
#include <string.h>

#include "error.h"
#include "objects.h"

/* --- objects --- */

le_status
le_check_pointer(const void *pointer, const char *what, le_error *error)
{
	return pointer != NULL ? le_error_clear(error) : le_invalid(error, "%s is NULL", what);
}

le_status
le_check_session(const le_session *session, le_error *error)
{
	le_must(le_check_pointer(session, "session", error));
	if (le_in_child(session))
		return le_invalid(error, "the session belongs to the parent process");
	return LE_OK;
}

le_status
le_check_hold(const le_hold *hold, le_error *error)
{
	le_must(le_check_pointer(hold, "hold", error));
	return le_check_session(hold->session, error);
}

/* --- structs of programs that were built with another version of the header --- */

/* Maximum size of a struct in bytes; a larger value means that the program has not set the size */
#define SIZE_MOST 65536

le_status
le_struct_check(const void *to, size_t least, const char *name, le_error *error)
{
	size_t given;

	memcpy(&given, to, sizeof(given));
	if (given < least || given > SIZE_MOST)
		return le_invalid(error, "size of %s is not set", name);
	return LE_OK;
}

/*
 * Structs grow only at their end, so the program's and the library's struct begin with the same members.
 * Members that only the program's struct has must be zero, because the library must not silently ignore
 * them.
 */
le_status
le_struct_read(void *to, size_t size, const void *from, const char *name, le_error *error)
{
	size_t given;

	le_must(le_struct_check(from, sizeof(given), name, error));
	memcpy(&given, from, sizeof(given));
	for (size_t i = size; i < given; i++)
	{
		if (((const char *) from)[i] != 0)
			return le_invalid(error,
							  "%s has a member that is not zero, and that liblockelection %s does not know",
							  name, le_version());
	}
	memset(to, 0, size);
	memcpy(to, from, given < size ? given : size);
	memcpy(to, &size, sizeof(size));
	return LE_OK;
}

/*
 * Fills the members that both the library's and the program's struct have, and sets the program's other
 * members to zero.
 */
void
le_struct_write(void *to, const void *from, size_t size)
{
	size_t given;

	memcpy(&given, to, sizeof(given));
	memset(to, 0, given);
	memcpy(to, from, given < size ? given : size);
	memcpy(to, &given, sizeof(given));
}

/* --- texts and numbers --- */

/* Returns the number of bytes of the first character; 0 if it is not valid UTF-8. */
static size_t
utf8_length(const unsigned char *c)
{
	static const unsigned char first[] = {0x80, 0xc2, 0xe0, 0xf0, 0xf5};
	static const size_t lengths[] = {1, 0, 2, 3, 4, 0};
	size_t kind = 0, length;

	while (kind < sizeof(first) && c[0] >= first[kind])
		kind++;
	length = lengths[kind];
	for (size_t i = 1; i < length; i++)
	{
		if ((c[i] & 0xc0) != 0x80)
			return 0;
	}
	/* reject overlong forms, surrogates, and characters beyond U+10FFFF */
	if ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf0 && c[1] < 0x90) ||
		(c[0] == 0xf4 && c[1] > 0x8f))
		return 0;
	return length;
}

le_status
le_check_utf8(const char *what, const char *text, le_error *error)
{
	const unsigned char *begin = (const unsigned char *) text, *c = begin;

	for (size_t length; *c != '\0'; c += length)
	{
		length = utf8_length(c);
		if (length == 0)
			return le_invalid(error, "%s is not UTF-8: byte %d is 0x%02x", what, (int) (c - begin) + 1, *c);
	}
	return LE_OK;
}

le_status
le_check_text(const char *what, const char *text, int max, le_error *error)
{
	if (text == NULL || text[0] == '\0')
		return le_invalid(error, "%s is %s: 1 to %d bytes are allowed", what, text == NULL ? "NULL" : "empty",
						  max);
	if (strlen(text) > (size_t) max)
		return le_invalid(error, "%s has %zu bytes: 1 to %d are allowed", what, strlen(text), max);
	return le_check_utf8(what, text, error);
}

le_status
le_check_names(const char *const *names, int n, le_error *error)
{
	char what[24];

	if (n < 1 || n > LE_NAMES_MAX)
		return le_invalid(error, "n is %d: 1 to %d names are allowed", n, LE_NAMES_MAX);
	le_must(le_check_pointer(names, "names", error));
	for (int i = 0; i < n; i++)
	{
		snprintf(what, sizeof(what), "names[%d]", i);
		le_must(le_check_text(what, names[i], LE_NAME_MAX, error));
	}
	return LE_OK;
}

le_status
le_check_candidacy(const char *election, const char *candidate, le_error *error)
{
	le_must(le_check_text("election", election, LE_NAME_MAX, error));
	return le_check_text("candidate", candidate, LE_CANDIDATE_MAX, error);
}

le_status
le_check_wait(int wait_ms, le_error *error)
{
	if (wait_ms >= -1)
		return LE_OK;
	return le_invalid(error, "wait_ms is %d: -1 (no limit), 0 and more are allowed", wait_ms);
}

le_status
le_check_how(const le_how *how, int n, le_error *error)
{
	if (how->permits < 0)
		return le_invalid(error, "how.permits is %d: 0 (no permit) and more are allowed", how->permits);
	if (how->permits > 0 && how->shared)
		return le_invalid(error, "how.permits is %d, and how.shared is set: only one of them is allowed",
						  how->permits);
	if (how->permits > 0 && n != 1)
		return le_invalid(error, "how.permits is %d, and n is %d: a permit has only one name", how->permits,
						  n);
	if (how->until < 0)
		return le_invalid(error, "how.until is %lld: 0 (no limit), and points of le_now() are allowed",
						  (long long) how->until);
	return LE_OK;
}
