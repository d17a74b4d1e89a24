/* The cage: what the daemon gives up once it listens. src/daemon/cage has the parts; here they are told apart by the
 * options. Landlock and the capabilities are of threads, so they go before the first one; the filter of system calls
 * reaches all threads, and goes when all is open and before the first request. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cage/files.h"
#include "daemon/cage/privileges.h"
#include "daemon/daemon.h"

#define FILES_MAX (GB_LISTEN_MAX + 2)

struct files {
    struct gb_cage_file items[FILES_MAX];
    char *folders[GB_LISTEN_MAX]; /* malloc'd, of items */
    size_t count;
    size_t folder_count;
};

static void files_add(struct files *files, const char *path, enum gb_landlock_right right) {
    files->items[files->count++] = (struct gb_cage_file){path, right};
}

/* A UNIX socket is removed at the end. */
static int files_add_folder(struct files *files, const char *socket_path, struct gb_error *err) {
    const char *slash = strrchr(socket_path, '/');
    char *folder = slash == NULL ? strdup(".") : strndup(socket_path, (size_t)(slash - socket_path) + 1);

    if (folder == NULL)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    files->folders[files->folder_count++] = folder;
    files_add(files, folder, GB_LANDLOCK_REMOVE);
    return 0;
}

static void files_done(struct files *files) {
    while (files->folder_count > 0)
        free(files->folders[--files->folder_count]);
}

static int files_of(const struct gb_daemon *daemon, struct files *ret, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    size_t i;

    files_add(ret, daemon->state_dir, GB_LANDLOCK_STATE);
    if (o->health_root[0] != '\0')
        files_add(ret, o->health_root, GB_LANDLOCK_READ);
    for (i = 0; i < daemon->listeners.count; i++)
        if (daemon->listeners.items[i].made_path &&
            files_add_folder(ret, daemon->listeners.items[i].text + strlen("unix:"), err) != 0)
            return -1;
    return 0;
}

static bool has_gpu(void) {
    static const char *const devices[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvmap", "/dev/nvgpu", "/dev/dxg"};
    size_t i;

    for (i = 0; i < sizeof devices / sizeof devices[0]; i++)
        if (access(devices[i], F_OK) == 0)
            return true;
    return false;
}

/* Whether CUDA's driver may be loaded; what it needs must be permitted before it is asked. */
static bool may_be_cuda(const char *spec) {
    const char *last = strrchr(spec, ':');

    if (strcmp(last != NULL ? last + 1 : spec, "auto") == 0)
        return has_gpu();
    return strstr(spec, "cuda") != NULL;
}

/* "auto" means none where instruments that were built in make calls and open files of their own. */
static bool instrumented(void) {
#ifdef GB_INSTRUMENTED
    return true;
#else
    return false;
#endif
}

static int enter_files(struct gb_daemon *daemon, struct gb_error *err) {
    struct files files = {.count = 0};
    int rc;

    if (strcmp(daemon->options.landlock, "off") == 0 || instrumented())
        return 0;
    rc = files_of(daemon, &files, err);
    /* SQLite's files for large sorts would go where nothing may be written. */
    if (rc == 0 && setenv("SQLITE_TMPDIR", daemon->state_dir, 0) != 0)
        rc = gb_error_errno(err, GB_ERR_INTERNAL, "setenv", errno);
    if (rc == 0)
        rc = gb_cage_files(files.items, files.count, may_be_cuda(daemon->options.backend), &daemon->cage.landlock, err);
    files_done(&files);
    return rc;
}

/* Root reads the files of others by a capability. */
static int check_state_dir(const struct gb_daemon *daemon, struct gb_error *err) {
    if (faccessat(AT_FDCWD, daemon->state_dir, R_OK | W_OK | X_OK, AT_EACCESS) == 0 &&
        (faccessat(AT_FDCWD, daemon->database, R_OK | W_OK, AT_EACCESS) == 0 || errno == ENOENT))
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL,
                        "the state directory %.128s or its database belongs to another user, and the daemon has given "
                        "up what lets root in all the same: start it as that user, give the directory to root, or "
                        "give --privileges keep",
                        daemon->state_dir);
}

void gb_daemon_hide(const struct gb_daemon *daemon) {
    if (!daemon->options.core_dumps)
        gb_privileges_hide();
}

int gb_daemon_enclose(struct gb_daemon *daemon, struct gb_error *err) {
    daemon->cage = (struct gb_daemon_cage){.seccomp = GB_SECCOMP_OFF};
    if (strcmp(daemon->options.privileges, "drop") == 0) {
        if (gb_privileges_drop(err) != 0 || check_state_dir(daemon, err) != 0)
            return -1;
        daemon->cage.privileges = true;
    }
    return enter_files(daemon, err);
}

static enum gb_seccomp seccomp_mode(const struct gb_daemon *daemon, bool cuda) {
    const char *word = daemon->options.seccomp;
    enum gb_seccomp mode;

    if (strcmp(word, "auto") == 0)
        return instrumented() ? GB_SECCOMP_OFF : cuda ? GB_SECCOMP_LOG : GB_SECCOMP_ERRNO;
    for (mode = GB_SECCOMP_OFF; mode < GB_SECCOMP_KILL; mode++)
        if (strcmp(word, gb_seccomp_name(mode)) == 0)
            return mode;
    return GB_SECCOMP_KILL;
}

int gb_daemon_filter(struct gb_daemon *daemon, struct gb_error *err) {
    bool cuda = strcmp(gb_backend_name(daemon->backend), "cuda") == 0;
    struct gb_daemon_cage *cage = &daemon->cage;
    char landlock[32] = "none";

    if (gb_seccomp_enter(seccomp_mode(daemon, cuda), cuda, &daemon->log, &cage->seccomp, err) != 0)
        return -1;
    if (cage->landlock > 0)
        snprintf(landlock, sizeof landlock, "version %d", cage->landlock);
    gb_log(&daemon->log, GB_LOG_INFO, "cage", "Landlock: %s; seccomp: %s; privileges: %s; core dumps: %s", landlock,
           gb_seccomp_name(cage->seccomp), cage->privileges ? "none" : "kept",
           daemon->options.core_dumps ? "permitted" : "none");
    return 0;
}
