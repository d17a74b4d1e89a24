#include "cli/backup/web.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/backup/manifest.h"
#include "cli/progress.h"

#define TEXT_MAX ((size_t)64 << 20) /* of an answer that is kept */
#define STALL_S 120                 /* a transfer or an answer that does not come */
#define CONNECT_S 10
#define BUFFER_BYTES (512l << 10)
#define PAUSE_MS 250
#define RETRY_AFTER_MAX_S 60
#define LOOK_MS 100
#define SIGNS_RIGHT 0x075800 /* libcurl 7.88 */

bool gb_web_stopped(const struct gb_web *web) {
    return !web->even_so &&
           (atomic_load(&web->cli->interrupted) != 0 || (web->stopped != NULL && atomic_load(web->stopped)));
}

int gb_web_init(struct gb_web *web, const struct gb_cli *cli, const struct gb_place *place, const atomic_bool *stopped,
                struct gpubuf_error *err) {
    *web = (struct gb_web){.cli = cli, .place = place, .stopped = stopped};
    if (place->kind == GB_PLACE_FOLDER)
        return 0;
    if (place->kind == GB_PLACE_S3 && curl_version_info(CURLVERSION_NOW)->version_num < SIGNS_RIGHT)
        return gb_backup_fail(err, GPUBUF_BAD_ARGUMENT,
                              "s3:// needs libcurl 7.88 or newer, because older ones sign requests wrongly; this is %s",
                              curl_version_info(CURLVERSION_NOW)->version);
    web->easy = curl_easy_init();
    return web->easy != NULL ? 0 : gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
}

void gb_web_done(struct gb_web *web) {
    curl_easy_cleanup(web->easy);
    curl_slist_free_all(web->headers);
    *web = (struct gb_web){0};
}

void gb_web_reply_done(struct gb_web_reply *reply) {
    free(reply->text);
    *reply = (struct gb_web_reply){0};
}

/* --- callbacks ---------------------------------------------------------------------------------------------------- */

/* The value of a header of that name, without blanks around it: how many bytes, or -1 where the line is another's. */
static int value_of(const char *line, size_t bytes, const char *name, const char **ret) {
    size_t n = strlen(name);

    if (bytes <= n || strncasecmp(line, name, n) != 0 || line[n] != ':')
        return -1;
    line += n + 1;
    bytes -= n + 1;
    while (bytes > 0 && (line[0] == ' ' || line[0] == '\t')) {
        line++;
        bytes--;
    }
    while (bytes > 0 && strchr(" \t\r\n", line[bytes - 1]) != NULL)
        bytes--;
    *ret = line;
    return (int)bytes;
}

static void keep(char *ret, size_t size, const char *value, int bytes) {
    snprintf(ret, size, "%.*s", bytes < (int)size ? bytes : (int)size - 1, value);
}

static size_t on_header(char *line, size_t one, size_t bytes, void *arg) {
    struct gb_web_reply *reply = arg;
    const char *value;
    char number[24];
    int n;

    (void)one;
    if (bytes > 9 && strncmp(line, "HTTP/", 5) == 0) { /* the last of several answers counts */
        const char *blank = memchr(line, ' ', bytes);

        reply->status = blank != NULL ? (int)strtol(blank, NULL, 10) : 0;
        reply->retry_after_s = 0;
        reply->length = GPUBUF_UNKNOWN;
    } else if ((n = value_of(line, bytes, "ETag", &value)) >= 0) {
        keep(reply->etag, sizeof reply->etag, value, n);
    } else if ((n = value_of(line, bytes, "x-amz-checksum-crc32c", &value)) >= 0) {
        keep(reply->crc32c, sizeof reply->crc32c, value, n);
    } else if ((n = value_of(line, bytes, "x-amz-bucket-region", &value)) >= 0) {
        keep(reply->region, sizeof reply->region, value, n);
    } else if ((n = value_of(line, bytes, "Content-Length", &value)) >= 0) {
        keep(number, sizeof number, value, n);
        reply->length = strtoull(number, NULL, 10);
    } else if ((n = value_of(line, bytes, "Retry-After", &value)) >= 0) {
        keep(number, sizeof number, value, n);
        reply->retry_after_s = (int)strtol(number, NULL, 10);
    }
    return bytes;
}

static size_t on_write(char *data, size_t one, size_t bytes, void *arg) {
    struct gb_web_reply *reply = arg;

    (void)one;
    if (reply->bytes + bytes + 1 > reply->room) {
        size_t room = 2 * (reply->bytes + bytes + 1);
        char *longer = room < TEXT_MAX ? realloc(reply->text, room) : NULL;

        if (longer == NULL)
            return 0;
        reply->text = longer;
        reply->room = room;
    }
    memcpy(reply->text + reply->bytes, data, bytes);
    reply->bytes += bytes;
    reply->text[reply->bytes] = '\0';
    return bytes;
}

struct upload {
    const struct gb_web_request *request;
    struct gb_web_reply *reply;
};

static size_t on_read(char *data, size_t one, size_t room, void *arg) {
    struct upload *upload = arg;
    size_t left = (size_t)upload->request->bytes - upload->reply->sent;

    (void)one;
    if (upload->request->read != NULL) {
        int64_t n = upload->request->read(upload->request->arg, data, room);

        return n < 0 ? CURL_READFUNC_ABORT : (size_t)n;
    }
    left = left < room ? left : room;
    memcpy(data, (const char *)upload->request->body + upload->reply->sent, left);
    upload->reply->sent += left;
    return left;
}

static int on_seek(void *arg, curl_off_t offset, int origin) {
    struct upload *upload = arg;

    if (origin != SEEK_SET || offset != 0)
        return CURL_SEEKFUNC_CANTSEEK;
    upload->reply->sent = 0;
    if (upload->request->read != NULL && upload->request->rewind(upload->request->arg) < 0)
        return CURL_SEEKFUNC_CANTSEEK;
    return CURL_SEEKFUNC_OK;
}

static int on_look(void *arg, curl_off_t down_all, curl_off_t down, curl_off_t up_all, curl_off_t up) {
    (void)down_all;
    (void)down;
    (void)up_all;
    (void)up;
    return gb_web_stopped(arg);
}

/* --- options ------------------------------------------------------------------------------------------------------ */

static int add_header(struct gb_web *web, const char *line) {
    struct curl_slist *longer = line != NULL ? curl_slist_append(web->headers, line) : web->headers;

    if (longer == NULL && line != NULL)
        return -1;
    web->headers = longer;
    return 0;
}

/* libcurl signs what stands among these headers. It knows the checksum of no body that it is yet to send. */
static int set_s3(struct gb_web *web) {
    curl_easy_setopt(web->easy, CURLOPT_AWS_SIGV4, web->place->sigv4);
    curl_easy_setopt(web->easy, CURLOPT_USERPWD, web->place->user);
    return add_header(web, "x-amz-content-sha256: UNSIGNED-PAYLOAD") < 0 || add_header(web, web->place->token) < 0 ? -1
                                                                                                                   : 0;
}

static void set_connection(struct gb_web *web) {
    uint32_t stall_s = web->cli->options.timeout > 0 ? (uint32_t)(web->cli->options.timeout + 0.999) : STALL_S;

    curl_easy_setopt(web->easy, CURLOPT_PATH_AS_IS, 1l);
    curl_easy_setopt(web->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(web->easy, CURLOPT_CONNECTTIMEOUT, stall_s < CONNECT_S ? (long)stall_s : (long)CONNECT_S);
    curl_easy_setopt(web->easy, CURLOPT_LOW_SPEED_LIMIT, 1l);
    curl_easy_setopt(web->easy, CURLOPT_LOW_SPEED_TIME, (long)stall_s);
    curl_easy_setopt(web->easy, CURLOPT_USERAGENT, "gpubuf/" GB_CLI_VERSION);
    curl_easy_setopt(web->easy, CURLOPT_NOSIGNAL, 1l);
    curl_easy_setopt(web->easy, CURLOPT_TCP_NODELAY, 1l);
    curl_easy_setopt(web->easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(web->easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(web->easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (web->place->cacert != NULL)
        curl_easy_setopt(web->easy, CURLOPT_CAINFO, web->place->cacert);
    curl_easy_setopt(web->easy, CURLOPT_ERRORBUFFER, web->said);
    curl_easy_setopt(web->easy, CURLOPT_NOPROGRESS, 0l);
    curl_easy_setopt(web->easy, CURLOPT_XFERINFOFUNCTION, on_look);
    curl_easy_setopt(web->easy, CURLOPT_XFERINFODATA, web);
}

int gb_web_set(struct gb_web *web, const struct gb_web_request *request, struct gb_web_reply *reply,
               struct gpubuf_error *err) {
    bool s3 = web->place->kind == GB_PLACE_S3;
    bool head = strcmp(request->method, "HEAD") == 0;
    const char *const *header;
    int rc = 0;

    *reply = (struct gb_web_reply){.length = GPUBUF_UNKNOWN};
    web->said[0] = '\0';
    curl_slist_free_all(web->headers);
    web->headers = NULL;
    curl_easy_reset(web->easy);
    set_connection(web);
    if (s3)
        rc = set_s3(web);
    else
        curl_easy_setopt(web->easy, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
    for (header = request->headers; header != NULL && *header != NULL; header++)
        rc |= add_header(web, *header);
    if (rc < 0 || curl_easy_setopt(web->easy, CURLOPT_URL, request->url) != CURLE_OK)
        return gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
    if (head)
        curl_easy_setopt(web->easy, CURLOPT_NOBODY, 1l);
    else
        curl_easy_setopt(web->easy, CURLOPT_CUSTOMREQUEST, request->method);
    if (request->body != NULL || request->read != NULL) {
        curl_easy_setopt(web->easy, CURLOPT_UPLOAD, 1l);
        curl_easy_setopt(web->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->bytes);
        curl_easy_setopt(web->easy, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(web->easy, CURLOPT_SEEKFUNCTION, on_seek);
    }
    curl_easy_setopt(web->easy, CURLOPT_HTTPHEADER, web->headers);
    curl_easy_setopt(web->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(web->easy, CURLOPT_HEADERDATA, reply);
    curl_easy_setopt(web->easy, CURLOPT_WRITEFUNCTION, on_write);
    curl_easy_setopt(web->easy, CURLOPT_WRITEDATA, reply);
    return 0;
}

/* --- what became of it -------------------------------------------------------------------------------------------- */

static void put_plain(char *ret, size_t size, char *text) {
    snprintf(ret, size, "%s", text != NULL ? text : "");
    free(text);
}

/* What S3 says of an error, in the body of the answer. */
struct said {
    char code[64];
    char message[256];
    char region[32];
};

static void read_said(const struct gb_web_reply *reply, struct said *ret) {
    const char *text = reply->text != NULL ? strstr(reply->text, "<Error>") : NULL;

    memset(ret, 0, sizeof *ret);
    if (text != NULL) {
        put_plain(ret->code, sizeof ret->code, gb_web_xml(text, "Code", NULL));
        put_plain(ret->message, sizeof ret->message, gb_web_xml(text, "Message", NULL));
        put_plain(ret->region, sizeof ret->region, gb_web_xml(text, "Region", NULL));
    }
    if (ret->region[0] == '\0')
        snprintf(ret->region, sizeof ret->region, "%s", reply->region);
}

static void advise(const struct gb_web *web, int status, const struct said *said, struct gpubuf_error *err) {
    size_t at = strlen(err->detail);
    const char *text = NULL;

    if (web->place->kind != GB_PLACE_S3)
        text = status == 401 || status == 403 ? "; a user and a password for it stand in ~/.netrc" : NULL;
    else if (strcmp(said->code, "SignatureDoesNotMatch") == 0)
        text = "; AWS_SECRET_ACCESS_KEY is not the secret of AWS_ACCESS_KEY_ID, or a proxy changes requests";
    else if (strcmp(said->code, "InvalidAccessKeyId") == 0)
        text = "; the store does not know AWS_ACCESS_KEY_ID";
    else if (strcmp(said->code, "ExpiredToken") == 0)
        text = "; get new credentials, and run the command again";
    else if (status >= 300 && status < 400 && said->region[0] == '\0')
        text = "; --endpoint names the store's own address";
    if (text != NULL)
        snprintf(err->detail + at, sizeof err->detail - at, "%s", text);
    else if (web->place->kind == GB_PLACE_S3 && said->region[0] != '\0')
        snprintf(err->detail + at, sizeof err->detail - at, "; the bucket is in region %s: set AWS_REGION",
                 said->region);
}

static int refused(const struct gb_web *web, const struct gb_web_request *request, const struct gb_web_reply *reply,
                   struct gpubuf_error *err) {
    int status = reply->status >= 200 && reply->status < 300 ? 500 : reply->status; /* an error in a good answer */
    struct said said;

    read_said(reply, &said);
    gb_backup_fail(err, GPUBUF_OUTPUT_FAILED, "%s: %s of %s was answered with status %d%s%s%s%s", web->place->name,
                   request->method, request->object, reply->status, said.code[0] != '\0' ? " " : "", said.code,
                   said.message[0] != '\0' ? ": " : "", said.message);
    advise(web, status, &said, err);
    err->status = status;
    err->retry_after_s = reply->retry_after_s;
    err->retryable = status == 429 || status == 408 || status == 500 || (status >= 502 && status <= 504) ||
                     strcmp(said.code, "RequestTimeout") == 0 || strcmp(said.code, "SlowDown") == 0;
    return -1;
}

static bool worth_another(CURLcode code) {
    switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_HTTP2:
    case CURLE_SSL_CONNECT_ERROR:
        return true;
    default:
        return false;
    }
}

int gb_web_judge(struct gb_web *web, const struct gb_web_request *request, const struct gb_web_reply *reply,
                 CURLcode code, struct gpubuf_error *err) {
    bool answered = reply->status >= 300; /* a server may answer and close before it has the whole body */

    if (gb_web_stopped(web))
        return gb_backup_fail(err, GPUBUF_INTERRUPTED, "interrupted");
    if (code != CURLE_OK && !(answered && worth_another(code))) {
        gb_backup_fail(err, GPUBUF_OUTPUT_FAILED, "%s: %s of %s failed: %s", web->place->name, request->method,
                       request->object, web->said[0] != '\0' ? web->said : curl_easy_strerror(code));
        err->retryable = worth_another(code);
        return -1;
    }
    if (reply->status == 404 && strcmp(request->method, "PUT") != 0 && strcmp(request->method, "POST") != 0)
        return 0;
    if (reply->status < 200 || reply->status >= 300)
        return refused(web, request, reply, err);
    if (web->place->kind == GB_PLACE_S3 && strcmp(request->method, "POST") == 0 && reply->text != NULL &&
        strstr(reply->text, "<Error>") != NULL)
        return refused(web, request, reply, err);
    return 0;
}

/* --- and again ---------------------------------------------------------------------------------------------------- */

static void trace(const struct gb_web *web, const struct gb_web_request *request, const struct gb_web_reply *reply,
                  double began) {
    if (!web->cli->options.verbose)
        return;
    flockfile(stderr);
    fprintf(stderr, GB_CLI_TRACE "%s ", request->method);
    gb_cli_put(stderr, request->url);
    fprintf(stderr, " -> %d (%.0f ms)\n", reply->status, (gb_cli_now() - began) * 1e3);
    funlockfile(stderr);
}

int gb_web_pause(const struct gb_web *web, unsigned tried, int retry_after_s, struct gpubuf_error *err) {
    double s = (double)PAUSE_MS / 1e3;
    double end;

    for (; tried > 1; tried--)
        s *= 4;
    if (retry_after_s > 0)
        s = retry_after_s < RETRY_AFTER_MAX_S ? retry_after_s : RETRY_AFTER_MAX_S;
    for (end = gb_cli_now() + s; gb_cli_now() < end; poll(NULL, 0, LOOK_MS))
        if (gb_web_stopped(web))
            return gb_backup_fail(err, GPUBUF_INTERRUPTED, "interrupted");
    return 0;
}

int gb_web_ask(struct gb_web *web, const struct gb_web_request *request, struct gb_web_reply *ret,
               struct gpubuf_error *err) {
    struct upload upload = {.request = request, .reply = ret};
    unsigned tried;

    *ret = (struct gb_web_reply){0};
    for (tried = 1;; tried++) {
        double began = gb_cli_now();
        CURLcode code;

        gb_web_reply_done(ret);
        if (request->read != NULL && request->rewind(request->arg) < 0)
            return gb_backup_fail(err, GPUBUF_INPUT_FAILED, "%s cannot be read again", request->object);
        if (gb_web_set(web, request, ret, err) < 0)
            return -1;
        curl_easy_setopt(web->easy, CURLOPT_READDATA, &upload);
        curl_easy_setopt(web->easy, CURLOPT_SEEKDATA, &upload);
        code = curl_easy_perform(web->easy);
        trace(web, request, ret, began);
        if (gb_web_judge(web, request, ret, code, err) == 0)
            return 0;
        if (!err->retryable || tried == GB_WEB_TRIES || gb_web_pause(web, tried, err->retry_after_s, err) < 0)
            return -1;
    }
}

/* --- XML ---------------------------------------------------------------------------------------------------------- */

/* Replaces the five entities of XML and character numbers below 128, in place. */
static void unescape(char *text) {
    static const struct {
        const char *entity;
        char letter;
    } known[] = {{"&quot;", '"'},  {"&amp;", '&'}, {"&lt;", '<'},  {"&gt;", '>'},
                 {"&apos;", '\''}, {"&#34;", '"'}, {"&#39;", '\''}};
    char *to = text;
    size_t i;

    while (*text != '\0') {
        for (i = 0; i < sizeof known / sizeof known[0]; i++)
            if (strncmp(text, known[i].entity, strlen(known[i].entity)) == 0)
                break;
        if (i < sizeof known / sizeof known[0]) {
            *to++ = known[i].letter;
            text += strlen(known[i].entity);
        } else {
            *to++ = *text++;
        }
    }
    *to = '\0';
}

char *gb_web_xml(const char *at, const char *tag, const char **ret_end) {
    char open[48];
    char close[48];
    const char *begin;
    const char *end;
    char *text;

    snprintf(open, sizeof open, "<%s>", tag);
    snprintf(close, sizeof close, "</%s>", tag);
    begin = at != NULL ? strstr(at, open) : NULL;
    end = begin != NULL ? strstr(begin, close) : NULL;
    if (end == NULL)
        return NULL;
    begin += strlen(open);
    text = strndup(begin, (size_t)(end - begin));
    if (text != NULL)
        unescape(text);
    if (ret_end != NULL)
        *ret_end = end + strlen(close);
    return text;
}
