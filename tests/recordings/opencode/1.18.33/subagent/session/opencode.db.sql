BEGIN TRANSACTION;
CREATE TABLE `account` (
          `id` text PRIMARY KEY,
          `email` text NOT NULL,
          `url` text NOT NULL,
          `access_token` text NOT NULL,
          `refresh_token` text NOT NULL,
          `token_expiry` integer,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL
        );
CREATE TABLE `account_state` (
          `id` integer PRIMARY KEY,
          `active_account_id` text,
          `active_org_id` text,
          CONSTRAINT `fk_account_state_active_account_id_account_id_fk` FOREIGN KEY (`active_account_id`) REFERENCES `account`(`id`) ON DELETE SET NULL
        );
CREATE TABLE `control_account` (
          `email` text NOT NULL,
          `url` text NOT NULL,
          `access_token` text NOT NULL,
          `refresh_token` text NOT NULL,
          `token_expiry` integer,
          `active` integer NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          CONSTRAINT `control_account_pk` PRIMARY KEY(`email`, `url`)
        );
CREATE TABLE `credential` (
          `id` text PRIMARY KEY,
          `integration_id` text,
          `label` text NOT NULL,
          `value` text NOT NULL,
          `connector_id` text,
          `method_id` text,
          `active` integer,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL
        );
CREATE TABLE `data_migration` (
          `name` text PRIMARY KEY,
          `time_completed` integer NOT NULL
        );
CREATE TABLE `event` (
          `id` text PRIMARY KEY,
          `aggregate_id` text NOT NULL,
          `seq` integer NOT NULL,
          `type` text NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_event_aggregate_id_event_sequence_aggregate_id_fk` FOREIGN KEY (`aggregate_id`) REFERENCES `event_sequence`(`aggregate_id`) ON DELETE CASCADE
        );
CREATE TABLE `event_sequence` (
          `aggregate_id` text PRIMARY KEY,
          `seq` integer NOT NULL,
          `owner_id` text
        );
INSERT INTO "event_sequence" VALUES('ses_e1add97feffemS3dgp3T7q9nj9',26,NULL);
INSERT INTO "event_sequence" VALUES('ses_e1add83baffe2pmoi5tQUPKZyT',29,NULL);
CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1e52269c6001UaqcrbGphg4N4j','ses_e1add97feffemS3dgp3T7q9nj9',1794845600198,1794845607536,'{"role":"user","time":{"created":1794845600198},"agent":"build","model":{"providerID":"lab","modelID":"scripted"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1e522717c001xeQsonYG30QVYR','ses_e1add97feffemS3dgp3T7q9nj9',1794845602173,1794845607431,'{"parentID":"msg_1e52269c6001UaqcrbGphg4N4j","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.00932,"tokens":{"total":7057,"input":7000,"output":57,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted","providerID":"lab","time":{"created":1794845602173,"completed":1794845607430},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1e5227c7f001rWn7Vr3MxzfsU4','ses_e1add83baffe2pmoi5tQUPKZyT',1794845604996,1794845607523,'{"role":"user","time":{"created":1794845604996},"agent":"general","model":{"providerID":"lab","modelID":"scripted"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1e5227cee001fBJDKzYb2iyVD9','ses_e1add83baffe2pmoi5tQUPKZyT',1794845605103,1794845607161,'{"parentID":"msg_1e5227c7f001rWn7Vr3MxzfsU4","role":"assistant","mode":"general","agent":"general","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.0012375,"tokens":{"total":1230,"input":700,"output":30,"reasoning":0,"cache":{"write":0,"read":500}},"modelID":"scripted","providerID":"lab","time":{"created":1794845605103,"completed":1794845607160},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1e52284fc001Mh5vnwT3o5LqEb','ses_e1add83baffe2pmoi5tQUPKZyT',1794845607164,1794845607335,'{"parentID":"msg_1e5227c7f001rWn7Vr3MxzfsU4","role":"assistant","mode":"general","agent":"general","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.00112,"tokens":{"total":1409,"input":760,"output":9,"reasoning":0,"cache":{"write":0,"read":640}},"modelID":"scripted","providerID":"lab","time":{"created":1794845607164,"completed":1794845607334},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_1e522860a0010XtKuTJM2WTgft','ses_e1add97feffemS3dgp3T7q9nj9',1794845607434,1794845607622,'{"parentID":"msg_1e52269c6001UaqcrbGphg4N4j","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.0098925,"tokens":{"total":14158,"input":7150,"output":8,"reasoning":0,"cache":{"write":0,"read":7000}},"modelID":"scripted","providerID":"lab","time":{"created":1794845607434,"completed":1794845607621},"finish":"stop"}');
CREATE TABLE "migration" (id TEXT PRIMARY KEY, time_completed INTEGER NOT NULL);
INSERT INTO "migration" VALUES('20260127222353_familiar_lady_ursula',1794845597461);
INSERT INTO "migration" VALUES('20260211171708_add_project_commands',1794845597461);
INSERT INTO "migration" VALUES('20260213144116_wakeful_the_professor',1794845597461);
INSERT INTO "migration" VALUES('20260225215848_workspace',1794845597461);
INSERT INTO "migration" VALUES('20260227213759_add_session_workspace_id',1794845597461);
INSERT INTO "migration" VALUES('20260228203230_blue_harpoon',1794845597461);
INSERT INTO "migration" VALUES('20260303231226_add_workspace_fields',1794845597471);
INSERT INTO "migration" VALUES('20260309230000_move_org_to_state',1794845597472);
INSERT INTO "migration" VALUES('20260312043431_session_message_cursor',1794845597472);
INSERT INTO "migration" VALUES('20260323234822_events',1794845597472);
INSERT INTO "migration" VALUES('20260410174513_workspace-name',1794845597473);
INSERT INTO "migration" VALUES('20260413175956_chief_energizer',1794845597473);
INSERT INTO "migration" VALUES('20260423070820_add_icon_url_override',1794845597473);
INSERT INTO "migration" VALUES('20260427172553_slow_nightmare',1794845597473);
INSERT INTO "migration" VALUES('20260428004200_add_session_path',1794845597473);
INSERT INTO "migration" VALUES('20260501142318_next_venus',1794845597473);
INSERT INTO "migration" VALUES('20260504145000_add_sync_owner',1794845597473);
INSERT INTO "migration" VALUES('20260507164347_add_workspace_time',1794845597473);
INSERT INTO "migration" VALUES('20260510033149_session_usage',1794845597473);
INSERT INTO "migration" VALUES('20260511000411_data_migration_state',1794845597479);
INSERT INTO "migration" VALUES('20260511173437_session-metadata',1794845597480);
INSERT INTO "migration" VALUES('20260601010001_normalize_storage_paths',1794845597480);
INSERT INTO "migration" VALUES('20260601202201_amazing_prowler',1794845597481);
INSERT INTO "migration" VALUES('20260602002951_lowly_union_jack',1794845597481);
INSERT INTO "migration" VALUES('20260602182828_add_project_directories',1794845597481);
INSERT INTO "migration" VALUES('20260603001617_session_message_projection_indexes',1794845597481);
INSERT INTO "migration" VALUES('20260603040000_session_message_projection_order',1794845597481);
INSERT INTO "migration" VALUES('20260603141458_session_input_inbox',1794845597481);
INSERT INTO "migration" VALUES('20260603160727_jittery_ezekiel_stane',1794845597481);
INSERT INTO "migration" VALUES('20260604172448_event_sourced_session_input',1794845597481);
INSERT INTO "migration" VALUES('20260605003541_add_session_context_snapshot',1794845597481);
INSERT INTO "migration" VALUES('20260605042240_add_context_epoch_agent',1794845597481);
INSERT INTO "migration" VALUES('20260611035744_credential',1794845597481);
INSERT INTO "migration" VALUES('20260611192811_lush_chimera',1794845597481);
INSERT INTO "migration" VALUES('20260612174303_project_dir_strategy',1794845597481);
INSERT INTO "migration" VALUES('20260622142730_simplify_session_context_epoch',1794845597493);
INSERT INTO "migration" VALUES('20260622170816_reset_v2_session_state',1794845597493);
INSERT INTO "migration" VALUES('20260622202450_simplify_session_input',1794845597493);
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1e52269d70010v1FaifPnNX56C','msg_1e52269c6001UaqcrbGphg4N4j','ses_e1add97feffemS3dgp3T7q9nj9',1794845602130,1794845602132,'{"type":"text","text":"\"Find missing.txt\""}');
INSERT INTO "part" VALUES('prt_1e5227bbb0011FSa2N8YcRUMXU','msg_1e522717c001xeQsonYG30QVYR','ses_e1add97feffemS3dgp3T7q9nj9',1794845604795,1794845604821,'{"snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e5227be2001dB08bmj2y6Pnlt','msg_1e522717c001xeQsonYG30QVYR','ses_e1add97feffemS3dgp3T7q9nj9',1794845604834,1794845607343,'{"type":"tool","tool":"task","callID":"call_ad8f6cba444e0c8f5d7565bf","state":{"status":"completed","input":{"description":"Look for a file","prompt":"SUBTASK: read missing.txt","subagent_type":"general"},"output":"<task id=\"ses_e1add83baffe2pmoi5tQUPKZyT\" state=\"completed\">\n<task_result>\nThe file is missing.\n</task_result>\n</task>","metadata":{"parentSessionId":"ses_e1add97feffemS3dgp3T7q9nj9","sessionId":"ses_e1add83baffe2pmoi5tQUPKZyT","model":{"modelID":"scripted","providerID":"lab"},"truncated":false},"title":"Look for a file","time":{"start":1794845604946,"end":1794845607342}}}');
INSERT INTO "part" VALUES('prt_1e5227c93001UmpFeXY1I1iR1L','msg_1e5227c7f001rWn7Vr3MxzfsU4','ses_e1add83baffe2pmoi5tQUPKZyT',1794845605013,1794845605014,'{"type":"text","text":"SUBTASK: read missing.txt"}');
INSERT INTO "part" VALUES('prt_1e5227ddc001omAYim1zU0rCtw','msg_1e5227cee001fBJDKzYb2iyVD9','ses_e1add83baffe2pmoi5tQUPKZyT',1794845605340,1794845605341,'{"snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e5227ddf001rrtY6Wp6U3zXon','msg_1e5227cee001fBJDKzYb2iyVD9','ses_e1add83baffe2pmoi5tQUPKZyT',1794845605343,1794845605402,'{"type":"text","text":"I look.","time":{"start":1794845605343,"end":1794845605400}}');
INSERT INTO "part" VALUES('prt_1e5227dea001vSlSNYjncqUBrh','msg_1e5227cee001fBJDKzYb2iyVD9','ses_e1add83baffe2pmoi5tQUPKZyT',1794845605354,1794845606958,'{"type":"tool","tool":"bash","callID":"call_e547b70ce2ba3e3bb10c15ab","state":{"status":"completed","input":{"command":"cat missing.txt","description":"Run a command"},"output":"cat: missing.txt: No such file or directory\n","metadata":{"output":"cat: missing.txt: No such file or directory\n","exit":1,"truncated":false},"title":"cat missing.txt","time":{"start":1794845605374,"end":1794845606952}}}');
INSERT INTO "part" VALUES('prt_1e5228481001vIuXqS6vxKjDpD','msg_1e5227cee001fBJDKzYb2iyVD9','ses_e1add83baffe2pmoi5tQUPKZyT',1794845607041,1794845607043,'{"reason":"tool-calls","snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-finish","tokens":{"total":1230,"input":700,"output":30,"reasoning":0,"cache":{"write":0,"read":500}},"cost":0.0012375}');
INSERT INTO "part" VALUES('prt_1e5228559001N5LTnv4hm1X4of','msg_1e52284fc001Mh5vnwT3o5LqEb','ses_e1add83baffe2pmoi5tQUPKZyT',1794845607257,1794845607258,'{"snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e522855c001xu0t3I37QtulCe','msg_1e52284fc001Mh5vnwT3o5LqEb','ses_e1add83baffe2pmoi5tQUPKZyT',1794845607260,1794845607263,'{"type":"text","text":"The file is missing.","time":{"start":1794845607260,"end":1794845607262}}');
INSERT INTO "part" VALUES('prt_1e522858e001rsfDka0VZxLGVQ','msg_1e52284fc001Mh5vnwT3o5LqEb','ses_e1add83baffe2pmoi5tQUPKZyT',1794845607310,1794845607311,'{"reason":"stop","snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-finish","tokens":{"total":1409,"input":760,"output":9,"reasoning":0,"cache":{"write":0,"read":640}},"cost":0.00112}');
INSERT INTO "part" VALUES('prt_1e52285e2001wOVlZBMKX0hRKM','msg_1e522717c001xeQsonYG30QVYR','ses_e1add97feffemS3dgp3T7q9nj9',1794845607394,1794845607395,'{"reason":"tool-calls","snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-finish","tokens":{"total":7057,"input":7000,"output":57,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.00932}');
INSERT INTO "part" VALUES('prt_1e522864e001Q73vnYzb9wI09B','msg_1e522860a0010XtKuTJM2WTgft','ses_e1add97feffemS3dgp3T7q9nj9',1794845607502,1794845607504,'{"snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e52286510015nx98lEGEm2qdL','msg_1e522860a0010XtKuTJM2WTgft','ses_e1add97feffemS3dgp3T7q9nj9',1794845607505,1794845607507,'{"type":"text","text":"It is missing.","time":{"start":1794845607505,"end":1794845607507}}');
INSERT INTO "part" VALUES('prt_1e5228686001b3XjX2qgNwGksi','msg_1e522860a0010XtKuTJM2WTgft','ses_e1add97feffemS3dgp3T7q9nj9',1794845607558,1794845607559,'{"reason":"stop","snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-finish","tokens":{"total":14158,"input":7150,"output":8,"reasoning":0,"cache":{"write":0,"read":7000}},"cost":0.0098925}');
CREATE TABLE `permission` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `action` text NOT NULL,
          `resource` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          CONSTRAINT `fk_permission_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
CREATE TABLE `project` (
          `id` text PRIMARY KEY,
          `worktree` text NOT NULL,
          `vcs` text,
          `name` text,
          `icon_url` text,
          `icon_url_override` text,
          `icon_color` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_initialized` integer,
          `sandboxes` text NOT NULL,
          `commands` text
        );
INSERT INTO "project" VALUES('e6a51b3ef8b05845e657346f622637bf66406be1','/home/dev/project','git',NULL,NULL,NULL,NULL,1794845599004,1794845599004,NULL,'[]',NULL);
CREATE TABLE `project_directory` (
          `project_id` text NOT NULL,
          `directory` text NOT NULL,
          `type` text,
          `strategy` text,
          `time_created` integer NOT NULL,
          CONSTRAINT `project_directory_pk` PRIMARY KEY(`project_id`, `directory`),
          CONSTRAINT `fk_project_directory_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "project_directory" VALUES('e6a51b3ef8b05845e657346f622637bf66406be1','/home/dev/project',NULL,NULL,1794845599013);
CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "session" VALUES('ses_e1add97feffemS3dgp3T7q9nj9','e6a51b3ef8b05845e657346f622637bf66406be1',NULL,NULL,'eager-meadow','/home/dev/project','','{"title": "Scripted session", "isNewTopic": true}','1.18.33',NULL,0,0,0,NULL,NULL,0.0192125,14150,65,0,7000,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"scripted","providerID":"lab","variant":"default"}',1794845599745,1794845607627,NULL,NULL);
INSERT INTO "session" VALUES('ses_e1add83baffe2pmoi5tQUPKZyT','e6a51b3ef8b05845e657346f622637bf66406be1',NULL,'ses_e1add97feffemS3dgp3T7q9nj9','misty-orchid','/home/dev/project','','Look for a file (@general subagent)','1.18.33',NULL,0,0,0,NULL,NULL,2.35750000000000022037e-03,1460,39,0,1140,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"},{"permission":"task","pattern":"*","action":"deny"}]','general','{"id":"scripted","providerID":"lab","variant":"default"}',1794845604933,1794845607358,NULL,NULL);
CREATE TABLE `session_context_epoch` (
          `session_id` text PRIMARY KEY,
          `baseline` text NOT NULL,
          `snapshot` text NOT NULL,
          `baseline_seq` integer NOT NULL,
          CONSTRAINT `fk_session_context_epoch_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
CREATE TABLE `session_input` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `prompt` text NOT NULL,
          `delivery` text NOT NULL,
          `admitted_seq` integer NOT NULL,
          `promoted_seq` integer,
          `time_created` integer NOT NULL,
          CONSTRAINT `fk_session_input_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
CREATE TABLE `session_message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `type` text NOT NULL,
          `seq` integer NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_session_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
CREATE TABLE `session_share` (
          `session_id` text PRIMARY KEY,
          `id` text NOT NULL,
          `secret` text NOT NULL,
          `url` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          CONSTRAINT `fk_session_share_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
CREATE TABLE `todo` (
          `session_id` text NOT NULL,
          `content` text NOT NULL,
          `status` text NOT NULL,
          `priority` text NOT NULL,
          `position` integer NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          CONSTRAINT `todo_pk` PRIMARY KEY(`session_id`, `position`),
          CONSTRAINT `fk_todo_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
CREATE TABLE `workspace` (
          `id` text PRIMARY KEY,
          `type` text NOT NULL,
          `name` text DEFAULT '' NOT NULL,
          `branch` text,
          `directory` text,
          `extra` text,
          `project_id` text NOT NULL,
          `time_used` integer NOT NULL,
          CONSTRAINT `fk_workspace_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
CREATE UNIQUE INDEX `event_aggregate_seq_idx` ON `event` (`aggregate_id`,`seq`);
CREATE INDEX `event_aggregate_type_seq_idx` ON `event` (`aggregate_id`,`type`,`seq`);
CREATE UNIQUE INDEX `permission_project_action_resource_idx` ON `permission` (`project_id`,`action`,`resource`);
CREATE INDEX `message_session_time_created_id_idx` ON `message` (`session_id`,`time_created`,`id`);
CREATE INDEX `part_message_id_id_idx` ON `part` (`message_id`,`id`);
CREATE INDEX `part_session_idx` ON `part` (`session_id`);
CREATE INDEX `session_input_session_pending_delivery_seq_idx` ON `session_input` (`session_id`,`promoted_seq`,`delivery`,`admitted_seq`);
CREATE UNIQUE INDEX `session_input_session_admitted_seq_idx` ON `session_input` (`session_id`,`admitted_seq`);
CREATE UNIQUE INDEX `session_input_session_promoted_seq_idx` ON `session_input` (`session_id`,`promoted_seq`);
CREATE UNIQUE INDEX `session_message_session_seq_idx` ON `session_message` (`session_id`,`seq`);
CREATE INDEX `session_message_session_type_seq_idx` ON `session_message` (`session_id`,`type`,`seq`);
CREATE INDEX `session_message_session_time_created_id_idx` ON `session_message` (`session_id`,`time_created`,`id`);
CREATE INDEX `session_message_time_created_idx` ON `session_message` (`time_created`);
CREATE INDEX `session_project_idx` ON `session` (`project_id`);
CREATE INDEX `session_workspace_idx` ON `session` (`workspace_id`);
CREATE INDEX `session_parent_idx` ON `session` (`parent_id`);
CREATE INDEX `todo_session_idx` ON `todo` (`session_id`);
COMMIT;
