/* The cage of a daemon: which files, capabilities and system calls it keeps, by its options, in which order it gives
 * up the others, and the rules of Landlock. The start calls this, before the first thread and once all is open. */
#include "daemon/cage/enclose.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <link.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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
    size_t i;

    if (files_add(ret, daemon->state_dir, GB_LANDLOCK_STATE, err) != 0 ||
        (o->health_root[0] != '\0' && files_add(ret, o->health_root, GB_LANDLOCK_READ, err) != 0))
        return -1;
    if (add_list(ret, &o->tls_cert, err) != 0 || add_list(ret, &o->tls_key, err) != 0 ||
        files_add_reread(ret, o->tls_client_ca, err) != 0 || files_add_reread(ret, o->tokens_file, err) != 0)
        return -1;
    if (files_add_reread(ret, o->fleet_ca, err) != 0 || files_add_reread(ret, o->fleet_cert, err) != 0 ||
        files_add_reread(ret, o->fleet_key, err) != 0 || files_add_reread(ret, o->pull_ca, err) != 0)
        return -1;
    for (i = 0; i < o->files_from.count; i++)
        if (files_add(ret, o->files_from.items[i], GB_LANDLOCK_READ, err) != 0)
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

/* --- landlock ----------------------------------------------------------------------------------------------------- */

/* Rules of Landlock for the files of a daemon: those of paths.def, libraries that are loaded, and what the options
 * name. */

/* Of newer kernels than the headers may be of: version 3, 4, 5 and 6. */
#define ACCESS_TRUNCATE (1ULL << 14)
#define ACCESS_IOCTL_DEV (1ULL << 15)
#define ACCESS_NET_BIND_TCP (1ULL << 0)
#define ACCESS_NET_CONNECT_TCP (1ULL << 1)
#define SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0)
#define SCOPE_SIGNAL (1ULL << 1)

/* A kernel of an older version takes it as long as what it does not know is zero. */
struct ruleset {
    uint64_t files;
    uint64_t net;
    uint64_t scoped;
};

#define READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define MAKE                                                                                                           \
    (LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_DIR |                        \
     LANDLOCK_ACCESS_FS_REFER)
#define REMOVE LANDLOCK_ACCESS_FS_REMOVE_FILE
#define WRITE (LANDLOCK_ACCESS_FS_WRITE_FILE | ACCESS_TRUNCATE)

static const uint64_t rights[] = {
    [GB_LANDLOCK_READ] = READ,
    [GB_LANDLOCK_RUN] = READ | LANDLOCK_ACCESS_FS_EXECUTE,
    [GB_LANDLOCK_DEVICE] = READ | WRITE | ACCESS_IOCTL_DEV,
    [GB_LANDLOCK_STATE] = READ | WRITE | MAKE | REMOVE | LANDLOCK_ACCESS_FS_REMOVE_DIR,
    [GB_LANDLOCK_SOCKET] = LANDLOCK_ACCESS_FS_MAKE_SOCK | REMOVE,
    [GB_LANDLOCK_BIND] = LANDLOCK_ACCESS_FS_MAKE_SOCK,
};

/* What may be said of a file that is no folder. */
#define OF_FILES                                                                                                       \
    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_EXECUTE | ACCESS_TRUNCATE |     \
     ACCESS_IOCTL_DEV)

struct gb_landlock {
    int fd;
    uint64_t handled;
    int *kept; /* descriptors of what rules name; the rules hold on to inodes, these to the names */
    size_t count;
    size_t room;
};

int gb_landlock_abi(void) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION);

    return abi > 0 ? (int)abi : 0;
}

static struct ruleset known(int abi, bool abstract, bool connects) {
    struct ruleset rules = {.files = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};

    if (abi >= 2)
        rules.files |= LANDLOCK_ACCESS_FS_REFER;
    if (abi >= 3)
        rules.files |= ACCESS_TRUNCATE;
    if (abi >= 4)
        rules.net = ACCESS_NET_BIND_TCP | (connects ? 0 : ACCESS_NET_CONNECT_TCP);
    if (abi >= 5)
        rules.files |= ACCESS_IOCTL_DEV;
    if (abi >= 6)
        rules.scoped = SCOPE_SIGNAL | (abstract ? 0 : SCOPE_ABSTRACT_UNIX_SOCKET);
    return rules;
}

struct gb_landlock *gb_landlock_new(bool abstract, bool connects, struct gb_error *err) {
    struct ruleset rules = known(gb_landlock_abi(), abstract, connects);
    struct gb_landlock *landlock = calloc(1, sizeof(*landlock));

    if (!landlock) {
        gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
        return NULL;
    }
    landlock->handled = rules.files;
    landlock->fd = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0U);
    if (landlock->fd < 0) {
        gb_error_errno(err, GB_ERR_INTERNAL, "landlock_create_ruleset", errno);
        gb_landlock_free(landlock);
        return NULL;
    }
    return landlock;
}

void gb_landlock_free(struct gb_landlock *landlock) {
    size_t i;

    if (!landlock)
        return;
    for (i = 0; i < landlock->count; i++)
        close(landlock->kept[i]);
    if (landlock->fd >= 0)
        close(landlock->fd);
    free(landlock->kept);
    free(landlock);
}

static int keep(struct gb_landlock *landlock, int fd, struct gb_error *err) {
    if (landlock->count == landlock->room) {
        size_t room = landlock->room + 32;
        int *kept = realloc(landlock->kept, room * sizeof(*kept));

        if (!kept)
            return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
        landlock->kept = kept;
        landlock->room = room;
    }
    landlock->kept[landlock->count++] = fd;
    return 0;
}

static int add_rule(struct gb_landlock *landlock, int fd, enum gb_landlock_right right, struct gb_error *err) {
    struct landlock_path_beneath_attr rule = {.allowed_access = rights[right] & landlock->handled, .parent_fd = fd};
    struct stat st;

    if (fstat(fd, &st) != 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "fstat", errno);
    if (!S_ISDIR(st.st_mode))
        rule.allowed_access &= OF_FILES;
    if (syscall(SYS_landlock_add_rule, landlock->fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0U) != 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "landlock_add_rule", errno);
    return 0;
}

int gb_landlock_permit(struct gb_landlock *landlock, const char *path, enum gb_landlock_right right,
                       struct gb_error *err) {
    int fd = open(path, O_PATH | O_CLOEXEC);

    if (fd < 0)
        return 0;
    if (add_rule(landlock, fd, right, err) != 0 || keep(landlock, fd, err) != 0) {
        close(fd);
        return -1;
    }
    return 0;
}

/* Puts the rules in force, for good. */
static int enter(const struct gb_landlock *landlock, struct gb_error *err) {
    if (gb_privileges_none_new(err) != 0)
        return -1;
    if (syscall(SYS_landlock_restrict_self, landlock->fd, 0U) != 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "landlock_restrict_self", errno);
    return 0;
}

/* --- the files that the daemon needs while it serves -------------------------------------------------------------- */

/* The rules in force: what they name stays open with them. */
static struct gb_landlock *in_force;

struct entry {
    unsigned set; /* 0: all */
    struct gb_cage_file file;
};

#define SET_ALL 0
#define SET_CUDA GB_CAGE_CUDA
#define SET_OUTWARD GB_CAGE_OUTWARD
#define GB_CAGE_PATH(set, right, path, why) {SET_##set, {path, GB_LANDLOCK_##right}},
static const struct entry entries[] = {
#include "daemon/cage/paths.def"
};
#undef GB_CAGE_PATH

static int permit_pattern(struct gb_landlock *landlock, const struct gb_cage_file *file, struct gb_error *err) {
    glob_t found;
    size_t i;
    int r = 0;

    if (!strpbrk(file->path, "*?"))
        return gb_landlock_permit(landlock, file->path, file->right, err);
    if (glob(file->path, GLOB_NOSORT, NULL, &found) != 0)
        return 0;
    for (i = 0; r == 0 && i < found.gl_pathc; i++)
        r = gb_landlock_permit(landlock, found.gl_pathv[i], file->right, err);
    globfree(&found);
    return r;
}

/* Folders of an environment variable, between colons. */
static int permit_list(struct gb_landlock *landlock, const char *variable, struct gb_error *err) {
    const char *value = getenv(variable);
    char *list = strdup(value ? value : "");
    char *rest = NULL;
    char *folder;
    int r = 0;

    if (!list)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    for (folder = strtok_r(list, ":", &rest); r == 0 && folder; folder = strtok_r(NULL, ":", &rest))
        r = gb_landlock_permit(landlock, folder, GB_LANDLOCK_READ, err);
    free(list);
    return r;
}

/* The dynamic linker that this program names; the kernel opens it as a program too. */
static int find_interpreter(struct dl_phdr_info *info, size_t size, void *ret) {
    int i;

    (void)size;
    for (i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_INTERP)
            *(const char **)ret = (const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return 1; /* the first one is the program itself */
}

/* The probe of another process's pool is this program again, with the libraries beside it. */
static int permit_self(struct gb_landlock *landlock, struct gb_error *err) {
    const char *interpreter = NULL;
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof "/../lib");
    char *slash;

    dl_iterate_phdr(find_interpreter, &interpreter);
    if (interpreter && gb_landlock_permit(landlock, interpreter, GB_LANDLOCK_RUN, err) != 0)
        return -1;
    if (n <= 0)
        return 0;
    path[n] = '\0';
    if (gb_landlock_permit(landlock, path, GB_LANDLOCK_RUN, err) != 0)
        return -1;
    slash = strrchr(path, '/');
    snprintf(slash, sizeof(path) - (size_t)(slash - path), "/../lib");
    return gb_landlock_permit(landlock, path, GB_LANDLOCK_READ, err);
}

static int permit_all(struct gb_landlock *landlock, const struct gb_cage_file *files, size_t count, unsigned sets,
                      struct gb_error *err) {
    size_t i;

    for (i = 0; i < count; i++)
        if (gb_landlock_permit(landlock, files[i].path, files[i].right, err) != 0)
            return -1;
    for (i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        if ((entries[i].set == 0 || (entries[i].set & sets) != 0) &&
            permit_pattern(landlock, &entries[i].file, err) != 0)
            return -1;
    if (permit_list(landlock, "LD_LIBRARY_PATH", err) != 0)
        return -1;
    return (sets & GB_CAGE_CUDA) != 0 ? permit_self(landlock, err) : 0;
}

/* A service manager's socket may be an abstract one; CUDA's driver has such sockets between processes. */
static bool needs_abstract(bool cuda) {
    const char *manager = getenv("NOTIFY_SOCKET");

    return cuda || (manager && manager[0] == '@');
}

int gb_cage_files(const struct gb_cage_file *files, size_t count, unsigned sets, int *ret_abi, struct gb_error *err) {
    struct gb_landlock *landlock;
    int abi = gb_landlock_abi();
    int r;

    *ret_abi = abi;
    if (abi == 0)
        return 0;
    landlock = gb_landlock_new(needs_abstract((sets & GB_CAGE_CUDA) != 0), (sets & GB_CAGE_OUTWARD) != 0, err);
    if (!landlock)
        return -1;
    r = permit_all(landlock, files, count, sets, err);
    if (r == 0)
        r = enter(landlock, err);
    if (r == 0)
        in_force = landlock;
    else
        gb_landlock_free(landlock);
    return r;
}
