/* Rules of Landlock for the files of a daemon: those of paths.def, libraries that are loaded, and what the options
 * name. */
#include "daemon/cage/landlock.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
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
