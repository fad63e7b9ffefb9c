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
INSERT INTO "event_sequence" VALUES('ses_e1addfaf6ffeditrA46NN00IJ1',77,NULL);
CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1e5220657001MzTHKNKeEVV3qU','ses_e1addfaf6ffeditrA46NN00IJ1',1794845574743,1794845584305,'{"role":"user","time":{"created":1794845574743},"agent":"build","model":{"providerID":"lab","modelID":"scripted"},"summary":{"diffs":[{"file":"greet.py","patch":"Index: greet.py\n===================================================================\n--- greet.py\t\n+++ greet.py\t\n@@ -0,0 +1,1 @@\n+print(''hello'')\n","additions":1,"deletions":0,"status":"added"}]}}');
INSERT INTO "message" VALUES('msg_1e5221277001G3n1goa6ZBEphj','ses_e1addfaf6ffeditrA46NN00IJ1',1794845577847,1794845581533,'{"parentID":"msg_1e5220657001MzTHKNKeEVV3qU","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.00929,"tokens":{"total":7054,"input":7000,"output":34,"reasoning":20,"cache":{"write":0,"read":0}},"modelID":"scripted","providerID":"lab","time":{"created":1794845577847,"completed":1794845581532},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1e52220e4001ztxCQ0HmDCV16l','ses_e1addfaf6ffeditrA46NN00IJ1',1794845581540,1794845582379,'{"parentID":"msg_1e5220657001MzTHKNKeEVV3qU","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.0102175,"tokens":{"total":14048,"input":7100,"output":48,"reasoning":0,"cache":{"write":0,"read":6900}},"modelID":"scripted","providerID":"lab","time":{"created":1794845581540,"completed":1794845582372},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1e5222430001I6RSrMz8EEAWtt','ses_e1addfaf6ffeditrA46NN00IJ1',1794845582384,1794845583348,'{"parentID":"msg_1e5220657001MzTHKNKeEVV3qU","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.010275,"tokens":{"total":14240,"input":7200,"output":40,"reasoning":0,"cache":{"write":0,"read":7000}},"modelID":"scripted","providerID":"lab","time":{"created":1794845582384,"completed":1794845583347},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1e52227f6001wXOuOTIEcsy0cA','ses_e1addfaf6ffeditrA46NN00IJ1',1794845583350,1794845583953,'{"parentID":"msg_1e5220657001MzTHKNKeEVV3qU","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.0103425,"tokens":{"total":14433,"input":7300,"output":33,"reasoning":0,"cache":{"write":0,"read":7100}},"modelID":"scripted","providerID":"lab","time":{"created":1794845583350,"completed":1794845583952},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1e5222a54001AuOU9CtQbAVvUA','ses_e1addfaf6ffeditrA46NN00IJ1',1794845583956,1794845584599,'{"parentID":"msg_1e5220657001MzTHKNKeEVV3qU","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.01023,"tokens":{"total":14608,"input":7400,"output":8,"reasoning":0,"cache":{"write":0,"read":7200}},"modelID":"scripted","providerID":"lab","time":{"created":1794845583956,"completed":1794845584593},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_1e5223edc00169f9cawfwpn42P','ses_e1addfaf6ffeditrA46NN00IJ1',1794845589212,1794845591526,'{"role":"user","time":{"created":1794845589212},"agent":"build","model":{"providerID":"lab","modelID":"scripted"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1e5224748001DFyz7HKVCuanXX','ses_e1addfaf6ffeditrA46NN00IJ1',1794845591368,1794845593956,'{"parentID":"msg_1e5223edc00169f9cawfwpn42P","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0.0103475,"tokens":{"total":14806,"input":7500,"output":6,"reasoning":0,"cache":{"write":0,"read":7300}},"modelID":"scripted","providerID":"lab","time":{"created":1794845591368,"completed":1794845593947},"finish":"stop"}');
CREATE TABLE "migration" (id TEXT PRIMARY KEY, time_completed INTEGER NOT NULL);
INSERT INTO "migration" VALUES('20260127222353_familiar_lady_ursula',1794845571753);
INSERT INTO "migration" VALUES('20260211171708_add_project_commands',1794845571753);
INSERT INTO "migration" VALUES('20260213144116_wakeful_the_professor',1794845571753);
INSERT INTO "migration" VALUES('20260225215848_workspace',1794845571753);
INSERT INTO "migration" VALUES('20260227213759_add_session_workspace_id',1794845571753);
INSERT INTO "migration" VALUES('20260228203230_blue_harpoon',1794845571753);
INSERT INTO "migration" VALUES('20260303231226_add_workspace_fields',1794845571754);
INSERT INTO "migration" VALUES('20260309230000_move_org_to_state',1794845571754);
INSERT INTO "migration" VALUES('20260312043431_session_message_cursor',1794845571754);
INSERT INTO "migration" VALUES('20260323234822_events',1794845571754);
INSERT INTO "migration" VALUES('20260410174513_workspace-name',1794845571754);
INSERT INTO "migration" VALUES('20260413175956_chief_energizer',1794845571754);
INSERT INTO "migration" VALUES('20260423070820_add_icon_url_override',1794845571754);
INSERT INTO "migration" VALUES('20260427172553_slow_nightmare',1794845571754);
INSERT INTO "migration" VALUES('20260428004200_add_session_path',1794845571754);
INSERT INTO "migration" VALUES('20260501142318_next_venus',1794845571754);
INSERT INTO "migration" VALUES('20260504145000_add_sync_owner',1794845571754);
INSERT INTO "migration" VALUES('20260507164347_add_workspace_time',1794845571754);
INSERT INTO "migration" VALUES('20260510033149_session_usage',1794845571754);
INSERT INTO "migration" VALUES('20260511000411_data_migration_state',1794845571755);
INSERT INTO "migration" VALUES('20260511173437_session-metadata',1794845571755);
INSERT INTO "migration" VALUES('20260601010001_normalize_storage_paths',1794845571755);
INSERT INTO "migration" VALUES('20260601202201_amazing_prowler',1794845571755);
INSERT INTO "migration" VALUES('20260602002951_lowly_union_jack',1794845571755);
INSERT INTO "migration" VALUES('20260602182828_add_project_directories',1794845571755);
INSERT INTO "migration" VALUES('20260603001617_session_message_projection_indexes',1794845571755);
INSERT INTO "migration" VALUES('20260603040000_session_message_projection_order',1794845571776);
INSERT INTO "migration" VALUES('20260603141458_session_input_inbox',1794845571776);
INSERT INTO "migration" VALUES('20260603160727_jittery_ezekiel_stane',1794845571776);
INSERT INTO "migration" VALUES('20260604172448_event_sourced_session_input',1794845571777);
INSERT INTO "migration" VALUES('20260605003541_add_session_context_snapshot',1794845571777);
INSERT INTO "migration" VALUES('20260605042240_add_context_epoch_agent',1794845571777);
INSERT INTO "migration" VALUES('20260611035744_credential',1794845571777);
INSERT INTO "migration" VALUES('20260611192811_lush_chimera',1794845571777);
INSERT INTO "migration" VALUES('20260612174303_project_dir_strategy',1794845571777);
INSERT INTO "migration" VALUES('20260622142730_simplify_session_context_epoch',1794845571777);
INSERT INTO "migration" VALUES('20260622170816_reset_v2_session_state',1794845571777);
INSERT INTO "migration" VALUES('20260622202450_simplify_session_input',1794845571777);
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1e522067e001rj6om7s2T5lP3g','msg_1e5220657001MzTHKNKeEVV3qU','ses_e1addfaf6ffeditrA46NN00IJ1',1794845577815,1794845577817,'{"type":"text","text":"\"Write greet.py\""}');
INSERT INTO "part" VALUES('prt_1e5221cd3001u8zacNiVAJfRRe','msg_1e5221277001G3n1goa6ZBEphj','ses_e1addfaf6ffeditrA46NN00IJ1',1794845580500,1794845580503,'{"snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e5221cde001dw3sq77LL3C41D','msg_1e5221277001G3n1goa6ZBEphj','ses_e1addfaf6ffeditrA46NN00IJ1',1794845580510,1794845580527,'{"type":"reasoning","text":"I should list the files.","time":{"start":1794845580510,"end":1794845580521}}');
INSERT INTO "part" VALUES('prt_1e5221cfd0011zBlj871qkAizI','msg_1e5221277001G3n1goa6ZBEphj','ses_e1addfaf6ffeditrA46NN00IJ1',1794845580541,1794845580666,'{"type":"text","text":"I list the files.","time":{"start":1794845580541,"end":1794845580665}}');
INSERT INTO "part" VALUES('prt_1e5221d0d001u2KOzqHTE2ZXeg','msg_1e5221277001G3n1goa6ZBEphj','ses_e1addfaf6ffeditrA46NN00IJ1',1794845580557,1794845581035,'{"type":"tool","tool":"bash","callID":"call_810aaf1a193fe0aded1d3fdb","state":{"status":"completed","input":{"command":"ls; exit 3","description":"Run a command"},"output":"README.md\n","metadata":{"output":"README.md\n","exit":3,"truncated":false},"title":"ls; exit 3","time":{"start":1794845580626,"end":1794845581033}}}');
INSERT INTO "part" VALUES('prt_1e5221ff2001q14qBysNyTv6tE','msg_1e5221277001G3n1goa6ZBEphj','ses_e1addfaf6ffeditrA46NN00IJ1',1794845581299,1794845581313,'{"reason":"tool-calls","snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-finish","tokens":{"total":7054,"input":7000,"output":34,"reasoning":20,"cache":{"write":0,"read":0}},"cost":0.00929}');
INSERT INTO "part" VALUES('prt_1e522225a001ILgrYwH2iyEATz','msg_1e52220e4001ztxCQ0HmDCV16l','ses_e1addfaf6ffeditrA46NN00IJ1',1794845581915,1794845581916,'{"snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e522225d001XSzw7jm2YH3jlW','msg_1e52220e4001ztxCQ0HmDCV16l','ses_e1addfaf6ffeditrA46NN00IJ1',1794845581918,1794845581950,'{"type":"tool","tool":"write","callID":"call_a7c39b02179e634789bdd0ba","state":{"status":"completed","input":{"filePath":"/home/dev/project/greet.py","content":"print(''hi'')\n"},"output":"Wrote file successfully.","metadata":{"diagnostics":{},"filepath":"/home/dev/project/greet.py","exists":false,"truncated":false},"title":"greet.py","time":{"start":1794845581928,"end":1794845581949}}}');
INSERT INTO "part" VALUES('prt_1e5222340001zL1Gl0ot0wJ1DW','msg_1e52220e4001ztxCQ0HmDCV16l','ses_e1addfaf6ffeditrA46NN00IJ1',1794845582146,1794845582151,'{"reason":"tool-calls","snapshot":"03805733b81f312f1a98c774a40f79abbf756b9e","type":"step-finish","tokens":{"total":14048,"input":7100,"output":48,"reasoning":0,"cache":{"write":0,"read":6900}},"cost":0.0102175}');
INSERT INTO "part" VALUES('prt_1e522241b001tYy1OY7qx0uydu','msg_1e52220e4001ztxCQ0HmDCV16l','ses_e1addfaf6ffeditrA46NN00IJ1',1794845582364,1794845582370,'{"type":"patch","hash":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","files":["/home/dev/project/greet.py"]}');
INSERT INTO "part" VALUES('prt_1e52226b00016L5rpTkm1sI7ao','msg_1e5222430001I6RSrMz8EEAWtt','ses_e1addfaf6ffeditrA46NN00IJ1',1794845583025,1794845583026,'{"snapshot":"03805733b81f312f1a98c774a40f79abbf756b9e","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e52226b3001JV4ZRDwEdTusYN','msg_1e5222430001I6RSrMz8EEAWtt','ses_e1addfaf6ffeditrA46NN00IJ1',1794845583027,1794845583112,'{"type":"tool","tool":"edit","callID":"call_47c77d87e78d9028111ff929","state":{"status":"completed","input":{"filePath":"/home/dev/project/greet.py","oldString":"hi","newString":"hello"},"output":"Edit applied successfully.","metadata":{"diagnostics":{},"diff":"Index: /home/dev/project/greet.py\n===================================================================\n--- /home/dev/project/greet.py\n+++ /home/dev/project/greet.py\n@@ -1,1 +1,1 @@\n-print(''hi'')\n+print(''hello'')\n","filediff":{"file":"/home/dev/project/greet.py","patch":"Index: /home/dev/project/greet.py\n===================================================================\n--- /home/dev/project/greet.py\n+++ /home/dev/project/greet.py\n@@ -1,1 +1,1 @@\n-print(''hi'')\n+print(''hello'')\n","additions":1,"deletions":1},"truncated":false},"title":"greet.py","time":{"start":1794845583061,"end":1794845583110}}}');
INSERT INTO "part" VALUES('prt_1e522279e001WredrOz2eSE8SO','msg_1e5222430001I6RSrMz8EEAWtt','ses_e1addfaf6ffeditrA46NN00IJ1',1794845583262,1794845583263,'{"reason":"tool-calls","snapshot":"20cd5bd2065e3df17f4f57c22d7ae6932fc117fd","type":"step-finish","tokens":{"total":14240,"input":7200,"output":40,"reasoning":0,"cache":{"write":0,"read":7000}},"cost":0.010275}');
INSERT INTO "part" VALUES('prt_1e52227f0001valD5pb4q05vuD','msg_1e5222430001I6RSrMz8EEAWtt','ses_e1addfaf6ffeditrA46NN00IJ1',1794845583344,1794845583345,'{"type":"patch","hash":"03805733b81f312f1a98c774a40f79abbf756b9e","files":["/home/dev/project/greet.py"]}');
INSERT INTO "part" VALUES('prt_1e522287a00101vWyMxmES9suR','msg_1e52227f6001wXOuOTIEcsy0cA','ses_e1addfaf6ffeditrA46NN00IJ1',1794845583482,1794845583488,'{"snapshot":"20cd5bd2065e3df17f4f57c22d7ae6932fc117fd","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e5222883001ocefh4UGDt2AiA','msg_1e52227f6001wXOuOTIEcsy0cA','ses_e1addfaf6ffeditrA46NN00IJ1',1794845583491,1794845583542,'{"type":"tool","tool":"invalid","callID":"call_093b1d49ce6de5051c02d3b3","state":{"status":"completed","input":{"tool":"nosuchtool","error":"Model tried to call unavailable tool ''nosuchtool''. Available tools: bash, edit, glob, grep, invalid, read, skill, task, todowrite, webfetch, write."},"output":"The arguments provided to the tool are invalid: Model tried to call unavailable tool ''nosuchtool''. Available tools: bash, edit, glob, grep, invalid, read, skill, task, todowrite, webfetch, write.","metadata":{"truncated":false},"title":"Invalid Tool","time":{"start":1794845583516,"end":1794845583541}}}');
INSERT INTO "part" VALUES('prt_1e5222a01001ShfyOZ2S3eI0xr','msg_1e52227f6001wXOuOTIEcsy0cA','ses_e1addfaf6ffeditrA46NN00IJ1',1794845583873,1794845583877,'{"reason":"tool-calls","snapshot":"20cd5bd2065e3df17f4f57c22d7ae6932fc117fd","type":"step-finish","tokens":{"total":14433,"input":7300,"output":33,"reasoning":0,"cache":{"write":0,"read":7100}},"cost":0.0103425}');
INSERT INTO "part" VALUES('prt_1e5222b53001796eLhtq2udfcZ','msg_1e5222a54001AuOU9CtQbAVvUA','ses_e1addfaf6ffeditrA46NN00IJ1',1794845584212,1794845584213,'{"snapshot":"20cd5bd2065e3df17f4f57c22d7ae6932fc117fd","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e5222b560016zPhYa9ODd3uvV','msg_1e5222a54001AuOU9CtQbAVvUA','ses_e1addfaf6ffeditrA46NN00IJ1',1794845584214,1794845584233,'{"type":"text","text":"greet.py is written.","time":{"start":1794845584214,"end":1794845584232}}');
INSERT INTO "part" VALUES('prt_1e5222c16001qy7ERujgBzjv8f','msg_1e5222a54001AuOU9CtQbAVvUA','ses_e1addfaf6ffeditrA46NN00IJ1',1794845584407,1794845584412,'{"reason":"stop","snapshot":"20cd5bd2065e3df17f4f57c22d7ae6932fc117fd","type":"step-finish","tokens":{"total":14608,"input":7400,"output":8,"reasoning":0,"cache":{"write":0,"read":7200}},"cost":0.01023}');
INSERT INTO "part" VALUES('prt_1e5223ede001QZghrsHeKEzqYd','msg_1e5223edc00169f9cawfwpn42P','ses_e1addfaf6ffeditrA46NN00IJ1',1794845591352,1794845591354,'{"type":"text","text":"\"And then?\""}');
INSERT INTO "part" VALUES('prt_1e522503e001evooukbllNXEaA','msg_1e5224748001DFyz7HKVCuanXX','ses_e1addfaf6ffeditrA46NN00IJ1',1794845593663,1794845593670,'{"snapshot":"20cd5bd2065e3df17f4f57c22d7ae6932fc117fd","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e5225051001QXWc82qpfr6bBx','msg_1e5224748001DFyz7HKVCuanXX','ses_e1addfaf6ffeditrA46NN00IJ1',1794845593681,1794845593689,'{"type":"text","text":"A second answer.","time":{"start":1794845593681,"end":1794845593687}}');
INSERT INTO "part" VALUES('prt_1e52250e5001yrtEkhbrN1pnH2','msg_1e5224748001DFyz7HKVCuanXX','ses_e1addfaf6ffeditrA46NN00IJ1',1794845593829,1794845593831,'{"reason":"stop","snapshot":"20cd5bd2065e3df17f4f57c22d7ae6932fc117fd","type":"step-finish","tokens":{"total":14806,"input":7500,"output":6,"reasoning":0,"cache":{"write":0,"read":7300}},"cost":0.0103475}');
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
INSERT INTO "project" VALUES('a35ccd8e75cfbaeb0d0b4f7a87b6f19c970e0529','/home/dev/project','git',NULL,NULL,NULL,NULL,1794845572893,1794845588329,NULL,'[]',NULL);
CREATE TABLE `project_directory` (
          `project_id` text NOT NULL,
          `directory` text NOT NULL,
          `type` text,
          `strategy` text,
          `time_created` integer NOT NULL,
          CONSTRAINT `project_directory_pk` PRIMARY KEY(`project_id`, `directory`),
          CONSTRAINT `fk_project_directory_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "project_directory" VALUES('a35ccd8e75cfbaeb0d0b4f7a87b6f19c970e0529','/home/dev/project',NULL,NULL,1794845572897);
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
INSERT INTO "session" VALUES('ses_e1addfaf6ffeditrA46NN00IJ1','a35ccd8e75cfbaeb0d0b4f7a87b6f19c970e0529',NULL,NULL,'gentle-eagle','/home/dev/project','','{"title": "Scripted session", "isNewTopic": true}','1.18.33',NULL,0,0,0,NULL,NULL,0.0607025,43500,169,20,35500,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"scripted","providerID":"lab","variant":"default"}',1794845574410,1794845594013,NULL,NULL);
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
