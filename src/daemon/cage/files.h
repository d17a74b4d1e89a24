/* The files that the daemon needs while it serves, as rules of Landlock. */
#ifndef GB_DAEMON_CAGE_FILES_H
#define GB_DAEMON_CAGE_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "daemon/cage/landlock.h"

struct gb_cage_file {
    const char *path;
    enum gb_landlock_right right;
};

/* Opens from now on only what files[0..count) and the table paths.def permit. sets: GB_CAGE_CUDA and so on
 * (calls.h).
 * *ret_abi: the version in force; 0: this kernel has no Landlock, and nothing is forbidden. */
int gb_cage_files(const struct gb_cage_file *files, size_t count, unsigned sets, int *ret_abi, struct gb_error *err);

#endif
