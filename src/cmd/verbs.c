// SPDX-License-Identifier: MPL-2.0
/* The table of verbs and options; args.c and help.c work from it. */
#include "cmd/verbs.h"

#include "cmd/commands.h"
#include "control/config.h"

#define PROFILES "single raid0 raid1 raid1-3 raid10 raid5 raid6"

static const struct option_spec specs[OPT_COUNT] = {
    {OPT_HELP, "help", OPTION_FLAG, NULL, "show this help", NULL},
    {OPT_JSON, "json", OPTION_FLAG, NULL, "print the API's own answer", NULL},
    {OPT_SOCKET, "socket", OPTION_TEXT, "PATH",
     "the service's socket [" CONFIG_SOCKET_DEFAULT ", or $HOLDFAST_SOCKET]", NULL},
    {OPT_CONFIG, "config", OPTION_TEXT, "FILE", "settings [" CONFIG_FILE_DEFAULT "]", NULL},
    {OPT_LISTEN, "listen", OPTION_TEXTS, "ADDR[:PORT]",
     "iSCSI portal; may be given again [" CONFIG_LISTEN_DEFAULT "]", NULL},
    {OPT_STATE_DIR, "state-dir", OPTION_TEXT, "DIR",
     "this node's own records [" CONFIG_STATE_DEFAULT "]", NULL},
    {OPT_POOL, "pool", OPTION_TEXTS, "NAME",
     "import this pool too; may be given again (those served last are imported anyway)", NULL},
    {OPT_SEARCH, "search", OPTION_PATHS, "PATH…", "folders and disks to look for pools in", NULL},
    {OPT_DISK, "disk", OPTION_PATHS, "PATH…", "block devices, or files that exist", NULL},
    {OPT_FILE, "file", OPTION_PATHS, "PATH…", "files, made (sparse) when they do not exist", NULL},
    {OPT_FILE_SIZE, "file-size", OPTION_SIZE, "SIZE", "of files that are made", NULL},
    {OPT_FORCE, "force", OPTION_FLAG, NULL, "overwrite whatever the disks hold", NULL},
    {OPT_FORCE_QUORUM, "force-quorum", OPTION_FLAG, NULL,
     "go on without a majority of the disks; those that are missing are shut out for good", NULL},
    {OPT_FORCE_HOST, "force-host", OPTION_FLAG, NULL,
     "take a pool that another host used last and did not export; be sure that host is down",
     NULL},
    {OPT_FORCE_DATA_LOSS, "force-data-loss", OPTION_FLAG, NULL,
     "go on although acknowledged writes are lost; says what is lost", NULL},
    {OPT_YES, "yes", OPTION_FLAG, NULL, "do not ask", NULL},
    {OPT_PROFILE, "profile", OPTION_TEXT, "PROFILE",
     PROFILES " [the safest that leaves a disk to spare: raid6, raid5, raid1, single]", PROFILES},
    {OPT_SIZE, "size", OPTION_SIZE, "SIZE", "such as 100G or 1.5T (binary units)", NULL},
    {OPT_THICK, "thick", OPTION_FLAG, NULL,
     "reserve the whole size now: writes never run out of space", NULL},
    {OPT_BLOCK_SIZE, "block-size", OPTION_NUMBER, "BYTES", "logical block: 512 or 4096 [512]",
     "512 4096"},
    {OPT_SYNC, "sync", OPTION_TEXT, "MODE",
     "always: a write is durable when it is acknowledged; standard: when it is flushed [always]",
     "always standard"},
    {OPT_NAME, "name", OPTION_TEXT, "NAME", "of the LUN [the volume's]", NULL},
    {OPT_TARGET, "target", OPTION_TEXT, "IQN",
     "iSCSI name [iqn.2026-01.local.holdfast:POOL]", NULL},
    {OPT_LUN, "lun", OPTION_NUMBER, "NUMBER", "0 to 255 [the lowest that is free]", NULL},
};

const struct option_spec *option_spec(enum option_id id) {
    return &specs[id];
}

const struct verb verbs[] = {
    {NULL, "serve", {NULL}, "run the array",
     "Imports the pools that were served last, serves their LUNs, and answers the other verbs, "
     "until SIGINT or SIGTERM.",
     NULL, true, cmd_serve,
     {OPT_CONFIG, OPT_SOCKET, OPT_LISTEN, OPT_STATE_DIR, OPT_POOL, OPT_SEARCH}},
    {"pool", "create", {"NAME"}, "make a pool of disks or files",
     "At once ready: nothing is synchronised. What the disks held is lost, and is therefore refused "
     "without --force.",
     NULL, false, cmd_pool_create, {OPT_DISK, OPT_FILE, OPT_FILE_SIZE, OPT_FORCE, OPT_YES}},
    {"pool", "import", {"[NAME]"}, "serve a pool, or list what could be imported",
     "Without NAME: lists the pools found, where, and who used them last.", NULL, false,
     cmd_pool_import,
     {OPT_DISK, OPT_FORCE_QUORUM, OPT_FORCE_HOST, OPT_FORCE_DATA_LOSS, OPT_YES}},
    {"pool", "export", {"NAME"}, "stop serving a pool and free it for any host",
     "Its LUNs disappear for initiators until it is imported again.", "pools", false,
     cmd_pool_export, {OPT_YES}},
    {"pool", "status", {"[NAME]"}, "health, disks, space, errors", NULL, "pools", false,
     cmd_pool_status, {OPT_HELP}},
    {"pool", "list", {NULL}, "the pools that are served", NULL, NULL, false, cmd_pool_list,
     {OPT_HELP}},
    {"pool", "destroy", {"NAME"}, "give a pool up: everything in it is lost",
     "Stops serving it and erases the labels of its disks. Files stay where they are.", "pools",
     false, cmd_pool_destroy, {OPT_YES}},
    {"volume", "create", {"POOL/VOLUME"}, "make a volume",
     "Thin unless --thick: it takes space as it is written.", "pools", false, cmd_volume_create,
     {OPT_SIZE, OPT_PROFILE, OPT_THICK, OPT_BLOCK_SIZE, OPT_SYNC}},
    {"volume", "list", {"[POOL]"}, "the volumes of a pool, or of all", NULL, "pools", false,
     cmd_volume_list, {OPT_HELP}},
    {"volume", "resize", {"POOL/VOLUME"}, "make a volume larger",
     "Initiators are told. Volumes do not shrink.", "volumes", false, cmd_volume_resize,
     {OPT_SIZE}},
    {"volume", "delete", {"POOL/VOLUME"}, "delete a volume and all that is in it",
     "Its LUNs have to be deleted first. The space comes back in the background.", "volumes", false,
     cmd_volume_delete, {OPT_YES}},
    {"lun", "create", {"POOL/VOLUME"}, "serve a volume over iSCSI", NULL, "volumes", false,
     cmd_lun_create, {OPT_NAME, OPT_TARGET, OPT_LUN}},
    {"lun", "list", {"[POOL]"}, "the LUNs of a pool, or of all", NULL, "pools", false,
     cmd_lun_list, {OPT_HELP}},
    {"lun", "delete", {"POOL/LUN"}, "stop serving a volume",
     "The volume and its data stay; initiators lose the disk.", "luns", false, cmd_lun_delete,
     {OPT_YES}},
    {"disk", "list", {NULL}, "the disks of this host and the pools' members", NULL, NULL, false,
     cmd_disk_list, {OPT_HELP}},
    {NULL, "health", {NULL}, "what is wrong and what to do", NULL, NULL, false, cmd_health,
     {OPT_HELP}},
    {NULL, "check", {"POOL"}, "verify every checksum of a pool that is not in use",
     "Reads only, needs no service. Looks at the disks given, or else in the places that the "
     "settings name and that were served last.",
     NULL, true, cmd_check, {OPT_DISK, OPT_CONFIG, OPT_STATE_DIR}},
    {NULL, "completion", {NULL}, "print completion for bash",
     "holdfast completion > /usr/share/bash-completion/completions/holdfast", NULL, true,
     cmd_completion, {OPT_HELP}},
    {NULL, "version", {NULL}, "this program's version", NULL, NULL, true, cmd_version, {OPT_HELP}},
    {NULL, "help", {"[NOUN]", "[VERB]"}, "this overview, or help on one verb", NULL, NULL, true,
     cmd_help, {OPT_HELP}},
};

const uint32_t verb_count = sizeof(verbs) / sizeof(verbs[0]);
