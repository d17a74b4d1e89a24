#include "store/place.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "store/lock.h"

static const char *const suffixes[GB_PLACE_FILES] = {"", "-wal", "-shm"};

static int stat_file(const struct gb_place *place, const char *suffix, struct stat *ret) {
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s%s", place->path, suffix) < (int)sizeof(path))
        return stat(path, ret);
    errno = ENAMETOOLONG;
    return -1;
}

int gb_place_note(struct gb_place *place, struct gb_error *err) {
    struct stat st;
    size_t i;

    for (i = 0; i < GB_PLACE_FILES; i++) {
        place->files[i].known = stat_file(place, suffixes[i], &st) == 0;
        if (!place->files[i].known && (errno != ENOENT || i == 0))
            return gb_error_errno(err, GB_ERR_INTERNAL, "stat", errno);
        if (place->files[i].known) {
            place->files[i].device = st.st_dev;
            place->files[i].inode = st.st_ino;
        }
    }
    return 0;
}

static int displaced(const struct gb_place *place, const char *suffix, const char *what, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_STORE_UNAVAILABLE,
                        "the database's file %.100s%s %s while the daemon runs, and what would be written now would be "
                        "gone after a restart: put the file back, or restart the daemon with the right one",
                        place->path, suffix, what);
}

/* One of the same name that is not locked any more: another daemon could take it. */
static int keep_lock(struct gb_place *place, struct gb_error *err) {
    struct stat ours;
    struct stat named;
    int fd;

    if (place->lock_fd < 0 || fstat(place->lock_fd, &ours) != 0)
        return 0;
    if (stat_file(place, ".lock", &named) == 0 && named.st_dev == ours.st_dev && named.st_ino == ours.st_ino)
        return 0;
    if (gb_lock_take(place->path, &fd, err) < 0)
        return -1;
    gb_lock_drop(place->lock_fd);
    place->lock_fd = fd;
    return 0;
}

int gb_place_check(struct gb_place *place, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct stat st;
    size_t i;

    for (i = 0; i < GB_PLACE_FILES; i++) {
        if (!place->files[i].known)
            continue;
        if (stat_file(place, suffixes[i], &st) != 0)
            return displaced(place, suffixes[i], errno == ENOENT ? "was renamed or removed" : "cannot be reached", err);
        if (st.st_dev != place->files[i].device || st.st_ino != place->files[i].inode)
            return displaced(place, suffixes[i], "was replaced by another one", err);
    }
    if (keep_lock(place, &why) == 0)
        return 0;
    why.code = GB_ERR_STORE_UNAVAILABLE;
    return gb_error_move(err, &why);
}
