/* Which files, capabilities and system calls the daemon keeps, by its options, and the order in which it gives up the
 * others. */
#include "daemon/cage/enclose.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cage/landlock.h"
#include "daemon/cage/privileges.h"
#include "daemon/cage/seccomp.h"
#include "daemon/request_log.h"

#define GROUPS_MAX 256

/* Of each socket and of each file of TLS two folders. */
#define FILES_MAX (2 * GB_LISTEN_MAX + 160)

struct files {
    struct gb_cage_file items[FILES_MAX];
    char *folders[FILES_MAX]; /* malloc'd, of items */
    size_t count;
    size_t folder_count;
};

static int files_add(struct files *files, const char *path, enum gb_landlock_right right, struct gb_error *err) {
    if (files->count == FILES_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the options name more than %d files", FILES_MAX);
    files->items[files->count++] = (struct gb_cage_file){path, right};
    return 0;
}

/* The folder that a file lies in: it is replaced by another one there. */
static int files_add_folder(struct files *files, const char *path, enum gb_landlock_right right, struct gb_error *err) {
    const char *slash = strrchr(path, '/');
    char *folder = !slash ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);

    if (!folder)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (files_add(files, folder, right, err) != 0) {
        free(folder);
        return -1;
    }
    files->folders[files->folder_count++] = folder;
    return 0;
}

/* Also the folder that links lead to, where the next version will lie. */
static int files_add_reread(struct files *files, const char *path, struct gb_error *err) {
    char *real;
    int r;

    if (path[0] == '\0')
        return 0;
    real = realpath(path, NULL);
    r = files_add_folder(files, path, GB_LANDLOCK_READ, err);
    if (r == 0 && real)
        r = files_add_folder(files, real, GB_LANDLOCK_READ, err);
    free(real);
    return r;
}

static void files_done(struct files *files) {
    while (files->folder_count > 0)
        free(files->folders[--files->folder_count]);
}

static int add_list(struct files *files, const struct gb_text_list *list, struct gb_error *err) {
    size_t i;

    for (i = 0; i < list->count; i++)
        if (files_add_reread(files, list->items[i], err) != 0)
            return -1;
    return 0;
}

/* The UNIX socket is made again if its file is removed, which is done at the end. If its folder is removed and made
 * again, the kernel takes that for another one, of which only the folder above is known now. The rule is for all that
 * lies there: nothing may be removed, and the root is left out. The state directory is no such folder: the database
 * would be gone with it. */
static int add_socket(struct files *files, const char *path, bool in_state_dir, struct gb_error *err) {
    char *real;
    int r = files_add_folder(files, path, GB_LANDLOCK_SOCKET, err);

    if (r != 0 || in_state_dir)
        return r;
    real = realpath(files->folders[files->folder_count - 1], NULL);
    if (real && strrchr(real, '/') != real)
        r = files_add_folder(files, real, GB_LANDLOCK_BIND, err);
    free(real);
    return r;
}

static int add_sockets(struct files *files, const struct gb_daemon *daemon, struct gb_error *err) {
    bool is_default = daemon->options.socket[0] == '\0';
    size_t i;

    for (i = 0; i < daemon->listeners.count; i++) {
        const struct gb_feed_listener *listener = &daemon->listeners.items[i];

        if (listener->file.ino != 0 && add_socket(files, listener->text + strlen("unix:"), is_default, err) != 0)
            return -1;
    }
    return 0;
}

/* What the options name and the daemon opens again later. */
static int files_of(const struct gb_daemon *daemon, struct files *ret, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;

    if (files_add(ret, daemon->state_dir, GB_LANDLOCK_STATE, err) != 0 ||
        (o->health_root[0] != '\0' && files_add(ret, o->health_root, GB_LANDLOCK_READ, err) != 0))
        return -1;
    if (add_list(ret, &o->tls_cert, err) != 0 || add_list(ret, &o->tls_key, err) != 0 ||
        files_add_reread(ret, o->tls_client_ca, err) != 0 || files_add_reread(ret, o->tokens_file, err) != 0)
        return -1;
    if (files_add_reread(ret, o->fleet_ca, err) != 0 || files_add_reread(ret, o->fleet_cert, err) != 0 ||
        files_add_reread(ret, o->fleet_key, err) != 0 || files_add_reread(ret, o->pull_ca, err) != 0)
        return -1;
    if (daemon->data_dir && files_add(ret, daemon->data_dir, GB_LANDLOCK_STATE, err) != 0)
        return -1;
    if (o->audit_file[0] != '\0' && files_add_folder(ret, o->audit_file, GB_LANDLOCK_STATE, err) != 0)
        return -1;
    if (gb_request_log_is_file(o->access_log) && files_add_folder(ret, o->access_log, GB_LANDLOCK_STATE, err) != 0)
        return -1;
    return add_sockets(ret, daemon, err);
}

static bool has_gpu(void) {
    static const char *const devices[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvmap", "/dev/nvgpu", "/dev/dxg"};
    size_t i;

    for (i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
        if (access(devices[i], F_OK) == 0)
            return true;
    return false;
}

/* Whether CUDA's driver may be loaded; what it needs must be permitted before it is asked. */
static bool may_be_cuda(const char *spec) {
    const char *last = strrchr(spec, ':');

    if (strcmp(last ? last + 1 : spec, "auto") == 0)
        return has_gpu();
    return strstr(spec, "cuda");
}

/* "auto" means none where instruments that were built in make calls and open files of their own. */
static bool instrumented(void) {
#ifdef GB_INSTRUMENTED
    return true;
#else
    return false;
#endif
}

static unsigned sets_of(const struct gb_daemon *daemon) {
    return (may_be_cuda(daemon->options.backend) ? GB_CAGE_CUDA : 0u) | (daemon->pulls ? GB_CAGE_OUTWARD : 0u);
}

static int enter_files(struct gb_daemon *daemon, struct gb_error *err) {
    bool cuda = may_be_cuda(daemon->options.backend);
    struct files files = {.count = 0};
    int r;

    if (strcmp(daemon->options.landlock, "auto") == 0 ? instrumented() : strcmp(daemon->options.landlock, "off") == 0)
        return 0;
    r = files_of(daemon, &files, err);
    if (r == 0 && cuda)
        r = gb_backend_prober_start(err);
    /* SQLite's files for large sorts would go where nothing may be written. */
    if (r == 0 && setenv("SQLITE_TMPDIR", daemon->state_dir, 0) != 0)
        r = gb_error_errno(err, GB_ERR_INTERNAL, "setenv", errno);
    if (r == 0)
        r = gb_cage_files(files.items, files.count, sets_of(daemon), &daemon->cage.landlock, err);
    files_done(&files);
    return r;
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

/* The UNIX socket may have to be made again: without capabilities a process gives files to its own groups only. A
 * sandbox may forbid it. */
static void join_socket_group(const struct gb_daemon *daemon) {
    gid_t groups[GROUPS_MAX + 1];
    int count = getgroups(GROUPS_MAX, groups);
    size_t i;

    for (i = 0; count >= 0 && i < daemon->listeners.count; i++) {
        const struct gb_feed_listener *listener = &daemon->listeners.items[i];

        if (listener->file.ino != 0 && listener->rights.gid != (gid_t)-1 && geteuid() == 0) {
            groups[count] = listener->rights.gid;
            (void)setgroups((size_t)count + 1, groups);
        }
    }
}

int gb_daemon_enclose(struct gb_daemon *daemon, struct gb_error *err) {
    daemon->cage = (struct gb_daemon_cage){.seccomp = GB_SECCOMP_OFF};
    if (strcmp(daemon->options.privileges, "drop") == 0) {
        int kept;

        join_socket_group(daemon);
        kept = gb_privileges_drop(err);

        if (kept < 0 || (kept == 0 && check_state_dir(daemon, err) != 0))
            return -1;
        if (kept > 0)
            gb_log(&daemon->log, GB_LOG_WARNING, "cage",
                   "a sandbox forbids the calls that give up capabilities: what there is of them is kept");
        daemon->cage.privileges = kept == 0;
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
    bool cuda = may_be_cuda(daemon->options.backend); /* also behind a decorator */
    struct gb_daemon_cage *cage = &daemon->cage;
    char landlock[32] = "none";

    if (gb_seccomp_enter(seccomp_mode(daemon, cuda), sets_of(daemon), &daemon->log, &cage->seccomp, err) != 0)
        return -1;
    if (cage->landlock > 0)
        snprintf(landlock, sizeof(landlock), "version %d", cage->landlock);
    gb_log(&daemon->log, GB_LOG_INFO, "cage", "Landlock: %s; seccomp: %s; privileges: %s; core dumps: %s", landlock,
           gb_seccomp_name(cage->seccomp), cage->privileges ? "none" : "kept",
           daemon->options.core_dumps ? "permitted" : "none");
    return 0;
}
