#include "store/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* The holder's process id is for the sentence only, so failing to read or write it is no failure. */
static int held_by_another(int fd, const char *path, struct gb_error *err) {
    char holder[16] = "";
    ssize_t n = pread(fd, holder, sizeof(holder) - 1, 0);

    holder[n > 0 ? strspn(holder, "0123456789") : 0] = '\0';
    return gb_error_set(err, GB_ERR_INTERNAL,
                        "another gpubufd%s%s%s uses the database %s; stop it, or choose another state directory",
                        holder[0] ? ", process " : "", holder, holder[0] ? "," : "", path);
}

static void write_holder(int fd) {
    char text[16];
    int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());

    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) < 0)
        return;
}

int gb_lock_take(const char *path, int *ret_fd, struct gb_error *err) {
    char lock_path[PATH_MAX];
    int fd;
    int r;

    if (snprintf(lock_path, sizeof(lock_path), "%s.lock", path) >= (int)sizeof(lock_path))
        return gb_error_set(err, GB_ERR_INTERNAL, "the path of the database is too long");
    fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        gb_error_native(err, "errno", errno, strerrorname_np(errno), "open");
        return gb_error_set(err, GB_ERR_INTERNAL, "the lock file %s cannot be opened: %s", lock_path,
                            strerrordesc_np(errno));
    }
    do
        r = flock(fd, LOCK_EX | LOCK_NB);
    while (r < 0 && errno == EINTR);
    if (r < 0) {
        if (errno == EWOULDBLOCK)
            held_by_another(fd, path, err);
        else
            gb_error_errno(err, GB_ERR_INTERNAL, "flock", errno);
        close(fd);
        return -1;
    }
    write_holder(fd);
    *ret_fd = fd;
    return 0;
}

void gb_lock_drop(int fd) {
    if (fd >= 0)
        close(fd);
}
