/* A disk that fails on demand: a VFS layer over SQLite's own. */
#ifndef STORE_VFS_H
#define STORE_VFS_H

#include <stdatomic.h>

/* Sets the result of all later writes (or syncs) of database and log: SQLITE_OK passes them through; SQLITE_FULL or
 * SQLITE_IOERR_FSYNC, for example, fails them. */
struct store_vfs_faults {
    atomic_int write_result;
    atomic_int sync_result;
    atomic_int refused; /* writes so far */
    /* Of the write-ahead log alone: */
    atomic_int log_syncs;         /* so far, failed ones included */
    atomic_int log_syncs_to_pass; /* this number, and then ... */
    atomic_int log_syncs_to_fail; /* ... this number fail with SQLITE_IOERR_FSYNC, once they reach it */
};

/* Makes the layer the default for connections that this process opens later. Ends the test on failure. */
struct store_vfs_faults *store_vfs_install(void);

#endif
