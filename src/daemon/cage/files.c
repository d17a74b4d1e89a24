#include "daemon/cage/files.h"

#include <elf.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cage/calls.h"

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
    int rc = 0;

    if (strpbrk(file->path, "*?") == NULL)
        return gb_landlock_permit(landlock, file->path, file->right, err);
    if (glob(file->path, GLOB_NOSORT, NULL, &found) != 0)
        return 0;
    for (i = 0; rc == 0 && i < found.gl_pathc; i++)
        rc = gb_landlock_permit(landlock, found.gl_pathv[i], file->right, err);
    globfree(&found);
    return rc;
}

/* Folders of an environment variable, between colons. */
static int permit_list(struct gb_landlock *landlock, const char *variable, struct gb_error *err) {
    const char *value = getenv(variable);
    char *list = strdup(value != NULL ? value : "");
    char *rest = NULL;
    char *folder;
    int rc = 0;

    if (list == NULL)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    for (folder = strtok_r(list, ":", &rest); rc == 0 && folder != NULL; folder = strtok_r(NULL, ":", &rest))
        rc = gb_landlock_permit(landlock, folder, GB_LANDLOCK_READ, err);
    free(list);
    return rc;
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
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof "/../lib");
    char *slash;

    dl_iterate_phdr(find_interpreter, &interpreter);
    if (interpreter != NULL && gb_landlock_permit(landlock, interpreter, GB_LANDLOCK_RUN, err) != 0)
        return -1;
    if (n <= 0)
        return 0;
    path[n] = '\0';
    if (gb_landlock_permit(landlock, path, GB_LANDLOCK_RUN, err) != 0)
        return -1;
    slash = strrchr(path, '/');
    snprintf(slash, sizeof path - (size_t)(slash - path), "/../lib");
    return gb_landlock_permit(landlock, path, GB_LANDLOCK_READ, err);
}

static int permit_all(struct gb_landlock *landlock, const struct gb_cage_file *files, size_t count, unsigned sets,
                      struct gb_error *err) {
    size_t i;

    for (i = 0; i < count; i++)
        if (gb_landlock_permit(landlock, files[i].path, files[i].right, err) != 0)
            return -1;
    for (i = 0; i < sizeof entries / sizeof entries[0]; i++)
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

    return cuda || (manager != NULL && manager[0] == '@');
}

int gb_cage_files(const struct gb_cage_file *files, size_t count, unsigned sets, int *ret_abi, struct gb_error *err) {
    struct gb_landlock *landlock;
    int abi = gb_landlock_abi();
    int rc;

    *ret_abi = abi;
    if (abi == 0)
        return 0;
    landlock = gb_landlock_new(needs_abstract((sets & GB_CAGE_CUDA) != 0), (sets & GB_CAGE_OUTWARD) != 0, err);
    if (landlock == NULL)
        return -1;
    rc = permit_all(landlock, files, count, sets, err);
    if (rc == 0)
        rc = gb_landlock_enter(landlock, err);
    if (rc == 0)
        in_force = landlock;
    else
        gb_landlock_free(landlock);
    return rc;
}
