/* The folder of the database, the UNIX socket and the file of addresses. */
#ifndef GB_DAEMON_STATE_DIR_H
#define GB_DAEMON_STATE_DIR_H

#include <sys/types.h>

#include "base/error.h"

/* The folder that `given` names, or the default when it is empty: $STATE_DIRECTORY (from systemd), /var/lib/gpubufd as
 * root, $XDG_STATE_HOME/gpubufd, ~/.local/state/gpubufd. Made with its parents (mode 0700) when absent. Returns a
 * malloc'd absolute path, NULL on error. */
char *gb_state_dir(const char *given, struct gb_error *err);

/* The same where it is there already: nothing is made. NULL with *err otherwise. The caller's. */
char *gb_state_dir_find(const char *given, struct gb_error *err);

/* Makes the folder and its parents as far as they are absent. The path is as it was afterwards. Returns 0, or -1 with
 * errno. */
int gb_folders_make(char *path, mode_t mode);

/* DIR/NAME, malloc'd; NULL when memory is exhausted. */
char *gb_state_path(const char *dir, const char *name);

#endif
