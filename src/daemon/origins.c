/* --cors-origin: origins as browsers write them, since they are compared as a whole. */
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"

#define HOST_LETTERS "abcdefghijklmnopqrstuvwxyz0123456789-_."
#define DIGITS "0123456789"
#define ORIGIN_MAX 255

/* The end of the host in text; NULL if there is none. */
static const char *host_end(const char *text) {
    size_t n;

    if (text[0] == '[') {
        n = strspn(text + 1, "0123456789abcdef:.");
        return n > 0 && text[n + 1] == ']' ? text + n + 2 : NULL;
    }
    n = strspn(text, HOST_LETTERS);
    return n > 0 ? text + n : NULL;
}

/* What is wrong with it; NULL: nothing. */
static const char *fault_of(const char *text) {
    bool tls = strncmp(text, "https://", 8) == 0;
    const char *end;
    size_t digits;

    if (strcmp(text, "*") == 0)
        return "any page of any site could use what this daemon permits without a token: name the origins";
    if (strcmp(text, "null") == 0)
        return "any page can have the origin null, in a frame of its own: serve the page by HTTP and name its origin";
    if (strlen(text) > ORIGIN_MAX)
        return "it has more than 255 characters";
    if (!tls && strncmp(text, "http://", 7) != 0)
        return "it begins with http:// or https://";
    end = host_end(text + (tls ? 8 : 7));
    if (!end)
        return "it names a host in lower case, as browsers do, and no pattern";
    if (end[0] == '\0')
        return NULL;
    if (end[0] >= 'A' && end[0] <= 'Z')
        return "browsers write the host in lower case";
    if (end[0] == '/')
        return "it ends with the host or the port, without a path";
    digits = end[0] == ':' ? strspn(end + 1, DIGITS) : 0;
    if (digits == 0 || digits > 5 || end[1 + digits] != '\0' || end[1] == '0' || atoi(end + 1) > 65535)
        return "it is SCHEME://HOST or SCHEME://HOST:PORT";
    if (strcmp(end, tls ? ":443" : ":80") == 0)
        return "browsers leave out the usual port";
    return NULL;
}

int gb_daemon_check_origins(const struct gb_options *o, struct gb_error *err) {
    size_t i;

    for (i = 0; i < o->cors_origin.count; i++) {
        const char *text = o->cors_origin.items[i];
        const char *fault = fault_of(text);

        if (fault)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "--cors-origin: \"%.64s\" is no origin such as https://dash.example:8443: %s", text,
                                fault);
    }
    return 0;
}
