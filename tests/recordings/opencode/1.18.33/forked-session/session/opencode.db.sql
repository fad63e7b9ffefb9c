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
INSERT INTO "event_sequence" VALUES('ses_e1add61f2ffeTmYraor5ejD7gL',15,NULL);
INSERT INTO "event_sequence" VALUES('ses_e1add3856ffeueytCyuBCUym8N',33,NULL);
CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1e5229ef3001h6SAtQH0fAg77H','ses_e1add61f2ffeTmYraor5ejD7gL',1794845613811,1794845617519,'{"role":"user","time":{"created":1794845613811},"agent":"build","model":{"providerID":"lab","modelID":"scripted"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1e522aaca001f9gpJEohXaL7Sc','ses_e1add61f2ffeTmYraor5ejD7gL',1794845616842,1794845619405,'{"parentID":"msg_1e5229ef3001h6SAtQH0fAg77H","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.00879,"tokens":{"total":7004,"input":7000,"output":4,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted","providerID":"lab","time":{"created":1794845616842,"completed":1794845619403},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_1e522c7be001B1D47nRMYLPFFz','ses_e1add3856ffeueytCyuBCUym8N',1794845613811,1794845624264,'{"role":"user","time":{"created":1794845613811},"agent":"build","model":{"providerID":"lab","modelID":"scripted"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1e522d106001V93Qgi0z9ke6ww','ses_e1add3856ffeueytCyuBCUym8N',1794845616842,1794845626632,'{"parentID":"msg_1e522c7be001B1D47nRMYLPFFz","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.00879,"tokens":{"total":7004,"input":7000,"output":4,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted","providerID":"lab","time":{"created":1794845616842,"completed":1794845619403},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_1e522d19e001e5EDFXknF1ObaR','ses_e1add3856ffeueytCyuBCUym8N',1794845626782,1794845627100,'{"role":"user","time":{"created":1794845626782},"agent":"build","model":{"providerID":"lab","modelID":"scripted"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1e522d1da001bNXLMpQald46UH','ses_e1add3856ffeueytCyuBCUym8N',1794845626842,1794845629880,'{"parentID":"msg_1e522d19e001e5EDFXknF1ObaR","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.0097275,"tokens":{"total":14054,"input":7050,"output":4,"reasoning":0,"cache":{"write":0,"read":7000}},"modelID":"scripted","providerID":"lab","time":{"created":1794845626842,"completed":1794845629878},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_1e522f364001DAbgxr9BpAZ7i9','ses_e1add3856ffeueytCyuBCUym8N',1794845635428,1794845638889,'{"role":"user","time":{"created":1794845635428},"agent":"build","model":{"providerID":"lab","modelID":"scripted"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1e522ff71001yull65hXOVh6Gr','ses_e1add3856ffeueytCyuBCUym8N',1794845638513,1794845641537,'{"parentID":"msg_1e522f364001DAbgxr9BpAZ7i9","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.00980625,"tokens":{"total":14155,"input":7100,"output":5,"reasoning":0,"cache":{"write":0,"read":7050}},"modelID":"scripted","providerID":"lab","time":{"created":1794845638513,"completed":1794845641535},"finish":"stop"}');
CREATE TABLE "migration" (id TEXT PRIMARY KEY, time_completed INTEGER NOT NULL);
INSERT INTO "migration" VALUES('20260127222353_familiar_lady_ursula',1794845610850);
INSERT INTO "migration" VALUES('20260211171708_add_project_commands',1794845610850);
INSERT INTO "migration" VALUES('20260213144116_wakeful_the_professor',1794845610855);
INSERT INTO "migration" VALUES('20260225215848_workspace',1794845610855);
INSERT INTO "migration" VALUES('20260227213759_add_session_workspace_id',1794845610856);
INSERT INTO "migration" VALUES('20260228203230_blue_harpoon',1794845610856);
INSERT INTO "migration" VALUES('20260303231226_add_workspace_fields',1794845610856);
INSERT INTO "migration" VALUES('20260309230000_move_org_to_state',1794845610856);
INSERT INTO "migration" VALUES('20260312043431_session_message_cursor',1794845610856);
INSERT INTO "migration" VALUES('20260323234822_events',1794845610856);
INSERT INTO "migration" VALUES('20260410174513_workspace-name',1794845610856);
INSERT INTO "migration" VALUES('20260413175956_chief_energizer',1794845610856);
INSERT INTO "migration" VALUES('20260423070820_add_icon_url_override',1794845610856);
INSERT INTO "migration" VALUES('20260427172553_slow_nightmare',1794845610856);
INSERT INTO "migration" VALUES('20260428004200_add_session_path',1794845610856);
INSERT INTO "migration" VALUES('20260501142318_next_venus',1794845610856);
INSERT INTO "migration" VALUES('20260504145000_add_sync_owner',1794845610856);
INSERT INTO "migration" VALUES('20260507164347_add_workspace_time',1794845610856);
INSERT INTO "migration" VALUES('20260510033149_session_usage',1794845610856);
INSERT INTO "migration" VALUES('20260511000411_data_migration_state',1794845610857);
INSERT INTO "migration" VALUES('20260511173437_session-metadata',1794845610857);
INSERT INTO "migration" VALUES('20260601010001_normalize_storage_paths',1794845610857);
INSERT INTO "migration" VALUES('20260601202201_amazing_prowler',1794845610857);
INSERT INTO "migration" VALUES('20260602002951_lowly_union_jack',1794845610857);
INSERT INTO "migration" VALUES('20260602182828_add_project_directories',1794845610857);
INSERT INTO "migration" VALUES('20260603001617_session_message_projection_indexes',1794845610857);
INSERT INTO "migration" VALUES('20260603040000_session_message_projection_order',1794845610857);
INSERT INTO "migration" VALUES('20260603141458_session_input_inbox',1794845610857);
INSERT INTO "migration" VALUES('20260603160727_jittery_ezekiel_stane',1794845610857);
INSERT INTO "migration" VALUES('20260604172448_event_sourced_session_input',1794845610857);
INSERT INTO "migration" VALUES('20260605003541_add_session_context_snapshot',1794845610857);
INSERT INTO "migration" VALUES('20260605042240_add_context_epoch_agent',1794845610857);
INSERT INTO "migration" VALUES('20260611035744_credential',1794845610858);
INSERT INTO "migration" VALUES('20260611192811_lush_chimera',1794845610858);
INSERT INTO "migration" VALUES('20260612174303_project_dir_strategy',1794845610858);
INSERT INTO "migration" VALUES('20260622142730_simplify_session_context_epoch',1794845610858);
INSERT INTO "migration" VALUES('20260622170816_reset_v2_session_state',1794845610858);
INSERT INTO "migration" VALUES('20260622202450_simplify_session_input',1794845610858);
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1e5229f6c001dHDhpWaTafOTbZ','msg_1e5229ef3001h6SAtQH0fAg77H','ses_e1add61f2ffeTmYraor5ejD7gL',1794845616788,1794845616790,'{"type":"text","text":"\"First prompt\""}');
INSERT INTO "part" VALUES('prt_1e522b44f001YHUGfYPpfwtY2O','msg_1e522aaca001f9gpJEohXaL7Sc','ses_e1add61f2ffeTmYraor5ejD7gL',1794845619279,1794845619281,'{"snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e522b452001cG1ix3aXu7zsqC','msg_1e522aaca001f9gpJEohXaL7Sc','ses_e1add61f2ffeTmYraor5ejD7gL',1794845619282,1794845619306,'{"type":"text","text":"One.","time":{"start":1794845619282,"end":1794845619305}}');
INSERT INTO "part" VALUES('prt_1e522b4a0001wFYTUC7T8s5o1f','msg_1e522aaca001f9gpJEohXaL7Sc','ses_e1add61f2ffeTmYraor5ejD7gL',1794845619360,1794845619362,'{"reason":"stop","snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-finish","tokens":{"total":7004,"input":7000,"output":4,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.00879}');
INSERT INTO "part" VALUES('prt_1e522d103001dJMz13HKJAaszi','msg_1e522c7be001B1D47nRMYLPFFz','ses_e1add3856ffeueytCyuBCUym8N',1794845626627,1794845626629,'{"type":"text","text":"\"First prompt\""}');
INSERT INTO "part" VALUES('prt_1e522d1090012cpTAil8gJ4yeM','msg_1e522d106001V93Qgi0z9ke6ww','ses_e1add3856ffeueytCyuBCUym8N',1794845626633,1794845626634,'{"snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e522d10b001SomZdWnwJv0Uq4','msg_1e522d106001V93Qgi0z9ke6ww','ses_e1add3856ffeueytCyuBCUym8N',1794845626635,1794845626648,'{"type":"text","text":"One.","time":{"start":1794845619282,"end":1794845619305}}');
INSERT INTO "part" VALUES('prt_1e522d119001EGAN4T1iYYizrK','msg_1e522d106001V93Qgi0z9ke6ww','ses_e1add3856ffeueytCyuBCUym8N',1794845626649,1794845626650,'{"reason":"stop","snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-finish","tokens":{"total":7004,"input":7000,"output":4,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.00879}');
INSERT INTO "part" VALUES('prt_1e522d1b2001ShD2sT95W3igdb','msg_1e522d19e001e5EDFXknF1ObaR','ses_e1add3856ffeueytCyuBCUym8N',1794845626809,1794845626809,'{"type":"text","text":"\"Second prompt, in a fork\""}');
INSERT INTO "part" VALUES('prt_1e522dc58001bzkuP15SAc0V8H','msg_1e522d1da001bNXLMpQald46UH','ses_e1add3856ffeueytCyuBCUym8N',1794845629528,1794845629530,'{"snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e522dc65001TKRq72z7J0iMZy','msg_1e522d1da001bNXLMpQald46UH','ses_e1add3856ffeueytCyuBCUym8N',1794845629541,1794845629584,'{"type":"text","text":"Two.","time":{"start":1794845629541,"end":1794845629565}}');
INSERT INTO "part" VALUES('prt_1e522dd67001lSnt2HMk13cfn7','msg_1e522d1da001bNXLMpQald46UH','ses_e1add3856ffeueytCyuBCUym8N',1794845629799,1794845629801,'{"reason":"stop","snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-finish","tokens":{"total":14054,"input":7050,"output":4,"reasoning":0,"cache":{"write":0,"read":7000}},"cost":0.0097275}');
INSERT INTO "part" VALUES('prt_1e522f366001N5cHA21qzIKZt2','msg_1e522f364001DAbgxr9BpAZ7i9','ses_e1add3856ffeueytCyuBCUym8N',1794845638449,1794845638452,'{"type":"text","text":"\"Third prompt, in the fork\""}');
INSERT INTO "part" VALUES('prt_1e5230aa5001DtFE7uV22pImr8','msg_1e522ff71001yull65hXOVh6Gr','ses_e1add3856ffeueytCyuBCUym8N',1794845641381,1794845641389,'{"snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e5230ab3001UKvVMnDBiiIFRz','msg_1e522ff71001yull65hXOVh6Gr','ses_e1add3856ffeueytCyuBCUym8N',1794845641395,1794845641427,'{"type":"text","text":"Three.","time":{"start":1794845641395,"end":1794845641425}}');
INSERT INTO "part" VALUES('prt_1e5230b19001vIZcUvNzH0GM4Z','msg_1e522ff71001yull65hXOVh6Gr','ses_e1add3856ffeueytCyuBCUym8N',1794845641497,1794845641499,'{"reason":"stop","snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-finish","tokens":{"total":14155,"input":7100,"output":5,"reasoning":0,"cache":{"write":0,"read":7050}},"cost":0.00980625}');
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
INSERT INTO "project" VALUES('9bd537a37f173554ef56345f83bde17fc0f6a501','/home/dev/project','git',NULL,NULL,NULL,NULL,1794845611751,1794845634037,NULL,'[]',NULL);
CREATE TABLE `project_directory` (
          `project_id` text NOT NULL,
          `directory` text NOT NULL,
          `type` text,
          `strategy` text,
          `time_created` integer NOT NULL,
          CONSTRAINT `project_directory_pk` PRIMARY KEY(`project_id`, `directory`),
          CONSTRAINT `fk_project_directory_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "project_directory" VALUES('9bd537a37f173554ef56345f83bde17fc0f6a501','/home/dev/project',NULL,NULL,1794845611754);
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
INSERT INTO "session" VALUES('ses_e1add61f2ffeTmYraor5ejD7gL','9bd537a37f173554ef56345f83bde17fc0f6a501',NULL,NULL,'calm-mountain','/home/dev/project','','{"title": "Scripted session", "isNewTopic": true}','1.18.33',NULL,0,0,0,NULL,NULL,0.00879,7000,4,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"scripted","providerID":"lab","variant":"default"}',1794845613581,1794845619411,NULL,NULL);
INSERT INTO "session" VALUES('ses_e1add3856ffeueytCyuBCUym8N','9bd537a37f173554ef56345f83bde17fc0f6a501',NULL,NULL,'stellar-knight','/home/dev/project','','{"title": "Scripted session", "isNewTopic": true} (fork #1)','1.18.33',NULL,0,0,0,NULL,NULL,0.02832375,21150,13,0,14050,0,NULL,NULL,'build','{"id":"scripted","providerID":"lab","variant":"default"}',1794845624233,1794845641547,NULL,NULL);
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
