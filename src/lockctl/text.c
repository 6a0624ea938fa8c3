/*
 * text.c
 *		Prepares texts from the server and the command line for terminals and
 *		JSON.
 *
 * Removes or escapes characters that a terminal would act upon: control
 * characters, and characters that change the direction of a line, so that it can
 * be mistaken for another text.
 */
#include "text.h"

#include <stdio.h>
#include <string.h>

#include "memory.h"

/* Returns the number of bytes in the first character; 1 if it is not UTF-8. */
static int
length_of(const unsigned char *c)
{
	int length = c[0] < 0xc2 ? 1 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 1;

	for (int i = 1; i < length; i++)
	{
		if ((c[i] & 0xc0) != 0x80)
			return 1;
	}
	return length;
}

/*
 * Returns the code point of the first character, whose size in bytes is "length".  For a byte that is not
 * UTF-8, returns the byte.
 */
static unsigned
code_of(const unsigned char *c, int length)
{
	unsigned code = length == 1 ? c[0] : c[0] & (0x7fU >> length);

	for (int i = 1; i < length; i++)
		code = code << 6 | (c[i] & 0x3f);
	return code;
}

/*
 * Returns whether a character is a control character, a line separator, or changes the direction of the text.
 */
static bool
is_control(unsigned code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c || code == 0x200e ||
		   code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

/* Writes a character as a C escape sequence, and returns the length of the sequence. */
static int
put_escape(char *to, unsigned code, int length)
{
	const char *letter = code != 0 && code < 0x20 ? strchr("\tt\nn\rr", (int) code) : NULL;

	if (letter != NULL)
		return sprintf(to, "\\%c", letter[1]);
	/* \x for one byte, which may not be UTF-8, and \u for a character of several bytes */
	return length == 1 ? sprintf(to, "\\x%02x", code) : sprintf(to, "\\u%04x", code);
}

/*
 * Returns a copy in which control characters are escaped as in C or, if escape is false, replaced by question
 * marks.
 */
static char *
without_controls(const char *text, bool escape)
{
	char *copy = lc_alloc(4 * strlen(text) + 1), *to = copy;

	for (const unsigned char *c = (const unsigned char *) text; *c != '\0';)
	{
		int length = length_of(c);
		unsigned code = code_of(c, length);

		if (!is_control(code))
		{
			memcpy(to, c, (size_t) length);
			to += length;
		}
		else if (escape)
			to += put_escape(to, code, length);
		else
			*to++ = '?';
		c += length;
	}
	return copy;
}

char *
lc_printable(const char *text)
{
	return without_controls(text, false);
}

char *
lc_escaped(const char *text)
{
	return without_controls(text, true);
}

bool
lc_may_be_secret(const char *text)
{
	const char *colon = strchr(text, ':'), *password = text;

	if (strstr(text, "://") != NULL || (colon != NULL && strchr(colon, '@') != NULL))
		return true;
	while ((password = strcasestr(password, "password")) != NULL)
	{
		password += strlen("password");
		if (password[strspn(password, " ")] == '=')
			return true;
	}
	return false;
}

bool
lc_is_conninfo(const char *text)
{
	return strchr(text, '=') != NULL || strncmp(text, "postgresql://", 13) == 0 ||
		   strncmp(text, "postgres://", 11) == 0;
}

const char *
lc_shown(const char *text)
{
	return lc_may_be_secret(text) ? "(not shown: it may contain a password)" : text;
}

char *
lc_line(const char *text)
{
	char *copy = lc_alloc(2 * strlen(text) + 1), *to = copy;

	for (text += strspn(text, "\n\t"); *text != '\0';)
	{
		size_t length = strcspn(text, "\n"), breaks = strspn(text + length, "\n\t");

		memcpy(to, text, length);
		to += length;
		text += length + breaks;
		if (*text != '\0')
			to += sprintf(to, "; ");
	}
	return copy;
}

char *
lc_json(const char *text)
{
	char *copy = lc_alloc(6 * strlen(text) + 3), *to = copy;

	*to++ = '"';
	for (const unsigned char *c = (const unsigned char *) text; *c != '\0'; c++)
	{
		if (*c == '"' || *c == '\\')
			*to++ = '\\';
		if (*c < 0x20)
			to += sprintf(to, "\\u%04x", *c);
		else
			*to++ = (char) *c;
	}
	*to++ = '"';
	return copy;
}

void
lc_csv(const char *text, bool always, const char *end)
{
	bool quotes = always || strpbrk(text, ",\"\n\r") != NULL;

	fputs(quotes ? "\"" : "", stdout);
	for (; *text != '\0'; text++)
		printf(*text == '"' ? "\"\"" : "%c", *text);
	printf("%s%s", quotes ? "\"" : "", end);
}
