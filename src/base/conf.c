#include "base/conf.h"

#include <ctype.h>
#include <string.h>

char *gb_conf_trim(char *line) {
    char *end;
    char *p;

    for (p = line; *p != '\0'; p++)
        if (*p == '#' && (p == line || isspace((unsigned char)p[-1])))
            *p = '\0';
    while (isspace((unsigned char)*line))
        line++;
    end = line + strlen(line);
    while (end > line && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return line;
}

bool gb_conf_split(char *text, char **ret_name, char **ret_value) {
    char *value = strchr(text, '=');

    if (value == NULL)
        return false;
    *value++ = '\0';
    *ret_name = gb_conf_trim(text);
    *ret_value = gb_conf_trim(value);
    return true;
}
