#include "store_vfs.h"

#include <check.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* SQLite allocates szOsFile bytes; the real layer's file follows this layer's part. */
struct file {
    sqlite3_file base;
    sqlite3_file *real;
    sqlite3_int64 is_log; /* eight bytes: the real file stays aligned */
};

static struct store_vfs_faults faults;
static sqlite3_io_methods methods;
static sqlite3_vfs layer;

static sqlite3_file *real_of(sqlite3_file *f) {
    return ((struct file *)f)->real;
}

static int x_close(sqlite3_file *f) {
    return real_of(f)->pMethods->xClose(real_of(f));
}

static int x_read(sqlite3_file *f, void *out, int n, sqlite3_int64 at) {
    return real_of(f)->pMethods->xRead(real_of(f), out, n, at);
}

static int x_write(sqlite3_file *f, const void *data, int n, sqlite3_int64 at) {
    int r = atomic_load(&faults.write_result);

    atomic_fetch_add(&faults.refused, r != SQLITE_OK);
    return r != SQLITE_OK ? r : real_of(f)->pMethods->xWrite(real_of(f), data, n, at);
}

static int x_truncate(sqlite3_file *f, sqlite3_int64 size) {
    return real_of(f)->pMethods->xTruncate(real_of(f), size);
}

/* Whether one of that number is left. Takes it. */
static bool take_one(atomic_int *count) {
    int n = atomic_load(count);

    while (n > 0 && !atomic_compare_exchange_weak(count, &n, n - 1))
        ;
    return n > 0;
}

static int x_sync(sqlite3_file *f, int flags) {
    int r = atomic_load(&faults.sync_result);

    if (((struct file *)f)->is_log) {
        atomic_fetch_add(&faults.log_syncs, 1);
        if (!take_one(&faults.log_syncs_to_pass) && take_one(&faults.log_syncs_to_fail))
            r = SQLITE_IOERR_FSYNC;
    }
    return r != SQLITE_OK ? r : real_of(f)->pMethods->xSync(real_of(f), flags);
}

static int x_file_size(sqlite3_file *f, sqlite3_int64 *ret) {
    return real_of(f)->pMethods->xFileSize(real_of(f), ret);
}

static int x_lock(sqlite3_file *f, int level) {
    return real_of(f)->pMethods->xLock(real_of(f), level);
}

static int x_unlock(sqlite3_file *f, int level) {
    return real_of(f)->pMethods->xUnlock(real_of(f), level);
}

static int x_check_reserved(sqlite3_file *f, int *ret) {
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), ret);
}

static int x_control(sqlite3_file *f, int op, void *arg) {
    return real_of(f)->pMethods->xFileControl(real_of(f), op, arg);
}

static int x_sector_size(sqlite3_file *f) {
    return real_of(f)->pMethods->xSectorSize(real_of(f));
}

static int x_characteristics(sqlite3_file *f) {
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}

static int x_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **ret) {
    return real_of(f)->pMethods->xShmMap(real_of(f), page, size, extend, ret);
}

static int x_shm_lock(sqlite3_file *f, int offset, int n, int flags) {
    return real_of(f)->pMethods->xShmLock(real_of(f), offset, n, flags);
}

static void x_shm_barrier(sqlite3_file *f) {
    real_of(f)->pMethods->xShmBarrier(real_of(f));
}

static int x_shm_unmap(sqlite3_file *f, int remove) {
    return real_of(f)->pMethods->xShmUnmap(real_of(f), remove);
}

static int x_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *ret_flags) {
    struct file *mine = (struct file *)f;
    sqlite3_vfs *real_vfs = vfs->pAppData;
    int r;

    mine->real = (sqlite3_file *)(mine + 1);
    mine->is_log = (flags & SQLITE_OPEN_WAL) != 0;
    memset(mine->real, 0, (size_t)real_vfs->szOsFile);
    r = real_vfs->xOpen(real_vfs, name, mine->real, flags, ret_flags);
    f->pMethods = mine->real->pMethods ? &methods : NULL;
    return r;
}

struct store_vfs_faults *store_vfs_install(void) {
    sqlite3_vfs *real_vfs = sqlite3_vfs_find(NULL);

    ck_assert_ptr_nonnull(real_vfs);
    methods = (sqlite3_io_methods){.iVersion = 2,
                                   .xClose = x_close,
                                   .xRead = x_read,
                                   .xWrite = x_write,
                                   .xTruncate = x_truncate,
                                   .xSync = x_sync,
                                   .xFileSize = x_file_size,
                                   .xLock = x_lock,
                                   .xUnlock = x_unlock,
                                   .xCheckReservedLock = x_check_reserved,
                                   .xFileControl = x_control,
                                   .xSectorSize = x_sector_size,
                                   .xDeviceCharacteristics = x_characteristics,
                                   .xShmMap = x_shm_map,
                                   .xShmLock = x_shm_lock,
                                   .xShmBarrier = x_shm_barrier,
                                   .xShmUnmap = x_shm_unmap};
    layer = *real_vfs; /* calls that concern no single file go to the real layer, which needs its own pAppData ... */
    layer.zName = "failing";
    layer.pNext = NULL;
    layer.szOsFile = (int)sizeof(struct file) + real_vfs->szOsFile;
    layer.xOpen = x_open;
    layer.pAppData = real_vfs; /* ... only in xOpen */
    ck_assert_int_eq(sqlite3_vfs_register(&layer, 1), SQLITE_OK);
    return &faults;
}
