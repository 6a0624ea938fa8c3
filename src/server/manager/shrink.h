/*
 * manager/shrink.h
 *		The manager's care for the size of its tables.
 */
#ifndef LE_SHRINK_H
#define LE_SHRINK_H

#include "core/core.h"

/*
 * Look how large the tables are, for the view, and write one anew that is mostly
 * dead rows.  Never fails or waits for anybody.  Returns when to call it again,
 * by le_clock().
 */
extern LeTime le_shrink_tend(void);

#endif /* LE_SHRINK_H */
