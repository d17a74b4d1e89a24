#include "http/message/status.h"

#include <stddef.h>

#define CLASSES 5
#define CODES 52 /* of a class: the highest in use is x51 */

/* libmicrohttpd's phrases, so that a reply is the same whichever way it goes out. */
static const char *const phrases[CLASSES][CODES] = {
    {
        [0] = "Continue",
        [1] = "Switching Protocols",
        [3] = "Early Hints",
    },
    {
        [0] = "OK",
        [1] = "Created",
        [2] = "Accepted",
        [3] = "Non-Authoritative Information",
        [4] = "No Content",
        [5] = "Reset Content",
        [6] = "Partial Content",
    },
    {
        [0] = "Multiple Choices",
        [1] = "Moved Permanently",
        [2] = "Found",
        [3] = "See Other",
        [4] = "Not Modified",
        [7] = "Temporary Redirect",
        [8] = "Permanent Redirect",
    },
    {
        [0] = "Bad Request",
        [1] = "Unauthorized",
        [2] = "Payment Required",
        [3] = "Forbidden",
        [4] = "Not Found",
        [5] = "Method Not Allowed",
        [6] = "Not Acceptable",
        [7] = "Proxy Authentication Required",
        [8] = "Request Timeout",
        [9] = "Conflict",
        [10] = "Gone",
        [11] = "Length Required",
        [12] = "Precondition Failed",
        [13] = "Content Too Large",
        [14] = "URI Too Long",
        [15] = "Unsupported Media Type",
        [16] = "Range Not Satisfiable",
        [17] = "Expectation Failed",
        [21] = "Misdirected Request",
        [22] = "Unprocessable Content",
        [23] = "Locked",
        [24] = "Failed Dependency",
        [25] = "Too Early",
        [26] = "Upgrade Required",
        [28] = "Precondition Required",
        [29] = "Too Many Requests",
        [31] = "Request Header Fields Too Large",
        [51] = "Unavailable For Legal Reasons",
    },
    {
        [0] = "Internal Server Error",
        [1] = "Not Implemented",
        [2] = "Bad Gateway",
        [3] = "Service Unavailable",
        [4] = "Gateway Timeout",
        [5] = "HTTP Version Not Supported",
        [7] = "Insufficient Storage",
        [8] = "Loop Detected",
        [11] = "Network Authentication Required",
    },
};

const char *gb_http_reason(int status) {
    unsigned class = (unsigned)status / 100 - 1;
    unsigned code = (unsigned)status % 100;
    const char *phrase = class < CLASSES && code < CODES ? phrases[class][code] : NULL;

    return phrase ? phrase : "Unknown";
}
