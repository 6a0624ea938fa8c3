/*
 * server.h
 *		Chooses the server to which a command connects.
 */
#ifndef SERVER_H
#define SERVER_H

/* --- shards.c --- */

/*
 * With --shards, chooses the server to which these names belong.  Ends the
 * program if they belong to different servers, or if there is neither a name
 * nor --shard.
 */
extern void lc_choose_shard(const char *const *names, int n);

/* --- conninfo.c --- */

/*
 * Returns the connection string for the global options; NULL if none of them is given, so that only the
 * environment applies.  With --shards, the caller must have called lc_choose_shard(), unless --shard is
 * given.
 */
extern char *lc_conninfo(void);

#endif /* SERVER_H */
