/* A disk that fails on demand: a layer over SQLite's file access. */
#ifndef STORE_VFS_H
#define STORE_VFS_H

#include <stdatomic.h>

/* What writes (or syncs) of database and log return from now on: SQLITE_OK to let them through, or for example
 * SQLITE_FULL, SQLITE_IOERR_FSYNC. */
struct store_vfs_faults {
    atomic_int write_result;
    atomic_int sync_result;
    atomic_int refused; /* writes so far */
};

/* Makes the layer the default for connections opened afterwards in this process. Ends the test when it cannot. */
struct store_vfs_faults *store_vfs_install(void);

#endif
