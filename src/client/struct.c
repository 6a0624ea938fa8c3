/*
 * struct.c
 *		Structs of a program that was built with another version of the header.
 *
 * Structs only grow at their end.  So a smaller one is the beginning of ours,
 * and a larger one begins with ours.  Of a larger one the rest has to be zero:
 * a member that the library does not know must not be asked for in vain.
 */
#include "internal.h"

#include <string.h>

/* No struct grows beyond this: a larger size is one that was never set. */
#define SIZE_MOST 65536

/*
 * Copies a struct that the caller has filled; members that it does not have
 * stay zero.  from begins with its size.
 */
le_status
le_struct_read(void *to, size_t size, const void *from, const char *name, le_error *error)
{
	size_t given;

	memcpy(&given, from, sizeof(given));
	if (given < sizeof(given) || given > SIZE_MOST)
		return le_error_set(error, LE_INVALID, "", "size of %s is not set", name);
	for (size_t i = size; i < given; i++)
	{
		if (((const char *) from)[i] != 0)
			return le_error_set(error, LE_INVALID, "",
								"%s has a member that is not zero, and that liblockelection %s does not know",
								name, le_version());
	}
	memset(to, 0, size);
	memcpy(to, from, given < size ? given : size);
	memcpy(to, &size, sizeof(size));
	return LE_OK;
}

/* Was the size of a struct set that is to be filled?  least: what every version has. */
le_status
le_struct_check(const void *to, size_t least, const char *name, le_error *error)
{
	size_t given;

	memcpy(&given, to, sizeof(given));
	if (given < least || given > SIZE_MOST)
		return le_error_set(error, LE_INVALID, "", "size of %s is not set", name);
	return LE_OK;
}

/* Fills the caller's struct, as far as it goes; members that we do not have become zero. */
void
le_struct_write(void *to, const void *from, size_t size)
{
	size_t given;

	memcpy(&given, to, sizeof(given));
	memset(to, 0, given);
	memcpy(to, from, given < size ? given : size);
	memcpy(to, &given, sizeof(given));
}
