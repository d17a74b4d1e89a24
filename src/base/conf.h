/* Lines of a configuration file: "name = value", and # begins a comment. Pure. */
#ifndef GB_BASE_CONF_H
#define GB_BASE_CONF_H

#include <stdbool.h>

/* Cuts the comment and the space around a line, in place. Returns the first character that counts; "" if none does. A #
 * within a word begins no comment. */
char *gb_conf_trim(char *line);

/* Cuts a trimmed line in two, in place: *ret_name and *ret_value, without space around either. False if it has no =. */
bool gb_conf_split(char *text, char **ret_name, char **ret_value);

#endif
