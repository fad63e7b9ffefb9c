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
INSERT INTO "event" VALUES('evt_1e51b3ff6001GMrAVCnaBAmkMe','ses_e1ae4c00affemR9yFukRrTAtZs',0,'session.created.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"ses_e1ae4c00affemR9yFukRrTAtZs","slug":"playful-forest","projectID":"df03d782722d91de726b73c7b466fecd3192ea59","directory":"/home/dev/project","path":"","cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}},"title":"New session - 2026-11-16T16:05:30.741Z","version":"1.18.33","time":{"created":1794845130741,"updated":1794845130741},"permission":[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]}}');
INSERT INTO "event" VALUES('evt_1e51b4053001rnrtpreW80V4d9','ses_e1ae4c00affemR9yFukRrTAtZs',1,'session.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"ses_e1ae4c00affemR9yFukRrTAtZs","slug":"playful-forest","projectID":"df03d782722d91de726b73c7b466fecd3192ea59","directory":"/home/dev/project","path":"","cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}},"title":"New session - 2026-11-16T16:05:30.741Z","agent":"build","model":{"id":"scripted","providerID":"lab","variant":"default"},"version":"1.18.33","time":{"created":1794845130741,"updated":1794845130833},"permission":[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]}}');
INSERT INTO "event" VALUES('evt_1e51b405a001bNvmEAj7bWRO02','ses_e1ae4c00affemR9yFukRrTAtZs',2,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b4051001fsGJgWcRJ6iXj6","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"user","time":{"created":1794845130833},"agent":"build","model":{"providerID":"lab","modelID":"scripted"}}}');
INSERT INTO "event" VALUES('evt_1e51b4883001R9LyRZxus8exbr','ses_e1ae4c00affemR9yFukRrTAtZs',3,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b4059001DNQJrbCmApOKXf","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b4051001fsGJgWcRJ6iXj6","type":"text","text":"\"make a file please\""},"time":1794845132931}');
INSERT INTO "event" VALUES('evt_1e51b489d001tz7Jd0z6YNXKI3','ses_e1ae4c00affemR9yFukRrTAtZs',4,'session.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"ses_e1ae4c00affemR9yFukRrTAtZs","slug":"playful-forest","projectID":"df03d782722d91de726b73c7b466fecd3192ea59","directory":"/home/dev/project","path":"","cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}},"title":"New session - 2026-11-16T16:05:30.741Z","agent":"build","model":{"id":"scripted","providerID":"lab","variant":"default"},"version":"1.18.33","time":{"created":1794845130741,"updated":1794845132956},"permission":[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]}}');
INSERT INTO "event" VALUES('evt_1e51b48ce001hgjVD1BDkT5mm9','ses_e1ae4c00affemR9yFukRrTAtZs',5,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b48cd001nsbxhCK1SWJvuW","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"assistant","time":{"created":1794845133005},"parentID":"msg_1e51b4051001fsGJgWcRJ6iXj6","modelID":"scripted","providerID":"lab","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}}}}');
INSERT INTO "event" VALUES('evt_1e51b496a001beKgade6yf4C32','ses_e1ae4c00affemR9yFukRrTAtZs',6,'session.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"ses_e1ae4c00affemR9yFukRrTAtZs","slug":"playful-forest","projectID":"df03d782722d91de726b73c7b466fecd3192ea59","directory":"/home/dev/project","path":"","cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}},"title":"{\"title\": \"Scripted session\", \"isNewTopic\": true}","agent":"build","model":{"id":"scripted","providerID":"lab","variant":"default"},"version":"1.18.33","time":{"created":1794845130741,"updated":1794845132956},"permission":[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]}}');
INSERT INTO "event" VALUES('evt_1e51b4b1e0010akRFFlLImX1vk','ses_e1ae4c00affemR9yFukRrTAtZs',7,'session.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"ses_e1ae4c00affemR9yFukRrTAtZs","slug":"playful-forest","projectID":"df03d782722d91de726b73c7b466fecd3192ea59","directory":"/home/dev/project","path":"","summary":{"additions":0,"deletions":0,"files":0},"cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}},"title":"{\"title\": \"Scripted session\", \"isNewTopic\": true}","agent":"build","model":{"id":"scripted","providerID":"lab","variant":"default"},"version":"1.18.33","time":{"created":1794845130741,"updated":1794845133596},"permission":[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]}}');
INSERT INTO "event" VALUES('evt_1e51b4b2b0015rT9hepIzVPBNV','ses_e1ae4c00affemR9yFukRrTAtZs',8,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b4051001fsGJgWcRJ6iXj6","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"user","time":{"created":1794845130833},"summary":{"diffs":[]},"agent":"build","model":{"providerID":"lab","modelID":"scripted"}}}');
INSERT INTO "event" VALUES('evt_1e51b50f8001HXFTGxeGVpiUWH','ses_e1ae4c00affemR9yFukRrTAtZs',9,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b50f8001U2OfZrs6YH06GO","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b48cd001nsbxhCK1SWJvuW","type":"step-start","snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee"},"time":1794845135096}');
INSERT INTO "event" VALUES('evt_1e51b5100001S9GYjFje6WJFxi','ses_e1ae4c00affemR9yFukRrTAtZs',10,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b5100001RrvSn79WYNaVPw","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b48cd001nsbxhCK1SWJvuW","type":"reasoning","text":"","time":{"start":1794845135104}},"time":1794845135104}');
INSERT INTO "event" VALUES('evt_1e51b5105001CoEYUB7HLJ0csQ','ses_e1ae4c00affemR9yFukRrTAtZs',11,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b5100001RrvSn79WYNaVPw","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b48cd001nsbxhCK1SWJvuW","type":"reasoning","text":"The file is missing, so I make it.","time":{"start":1794845135104,"end":1794845135109}},"time":1794845135109}');
INSERT INTO "event" VALUES('evt_1e51b51070018rdflP40tApaY9','ses_e1ae4c00affemR9yFukRrTAtZs',12,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b51070016ebgl3URfr4iB3","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b48cd001nsbxhCK1SWJvuW","type":"text","text":"","time":{"start":1794845135111}},"time":1794845135111}');
INSERT INTO "event" VALUES('evt_1e51b510f001zHXZuCn5CRjkHH','ses_e1ae4c00affemR9yFukRrTAtZs',13,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b510f0013Exbnx0bgpiC3F","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b48cd001nsbxhCK1SWJvuW","type":"tool","callID":"call_d2959070991f342debab275f","tool":"bash","state":{"status":"pending","input":{},"raw":""}},"time":1794845135119}');
INSERT INTO "event" VALUES('evt_1e51b514f001yz0mzlocXyjpM4','ses_e1ae4c00affemR9yFukRrTAtZs',14,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b510f0013Exbnx0bgpiC3F","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b48cd001nsbxhCK1SWJvuW","type":"tool","callID":"call_d2959070991f342debab275f","tool":"bash","state":{"status":"running","input":{"command":"echo made > made.txt; cat made.txt","description":"Run a command"},"time":{"start":1794845135183}}},"time":1794845135183}');
INSERT INTO "event" VALUES('evt_1e51b516c001vPf3iTbBeBM53A','ses_e1ae4c00affemR9yFukRrTAtZs',15,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b51070016ebgl3URfr4iB3","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b48cd001nsbxhCK1SWJvuW","type":"text","text":"I make it.","time":{"start":1794845135111,"end":1794845135212}},"time":1794845135212}');
INSERT INTO "event" VALUES('evt_1e51b51d3001Fv7ohyfAAJ1vuC','ses_e1ae4c00affemR9yFukRrTAtZs',16,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b510f0013Exbnx0bgpiC3F","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b48cd001nsbxhCK1SWJvuW","type":"tool","callID":"call_d2959070991f342debab275f","tool":"bash","state":{"status":"running","input":{"command":"echo made > made.txt; cat made.txt","description":"Run a command"},"metadata":{"output":""},"time":{"start":1794845135183}}},"time":1794845135315}');
INSERT INTO "event" VALUES('evt_1e51b51e6001Qnu9TexJxu1Mou','ses_e1ae4c00affemR9yFukRrTAtZs',17,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b510f0013Exbnx0bgpiC3F","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b48cd001nsbxhCK1SWJvuW","type":"tool","callID":"call_d2959070991f342debab275f","tool":"bash","state":{"status":"running","input":{"command":"echo made > made.txt; cat made.txt","description":"Run a command"},"metadata":{"output":"made\n"},"time":{"start":1794845135183}}},"time":1794845135334}');
INSERT INTO "event" VALUES('evt_1e51b51eb001suoTc1KeJXMv1o','ses_e1ae4c00affemR9yFukRrTAtZs',18,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b510f0013Exbnx0bgpiC3F","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b48cd001nsbxhCK1SWJvuW","type":"tool","callID":"call_d2959070991f342debab275f","tool":"bash","state":{"status":"completed","input":{"command":"echo made > made.txt; cat made.txt","description":"Run a command"},"output":"made\n","title":"echo made > made.txt; cat made.txt","metadata":{"output":"made\n","exit":0,"truncated":false},"time":{"start":1794845135183,"end":1794845135339}}},"time":1794845135339}');
INSERT INTO "event" VALUES('evt_1e51b5268001kS3CbO9cSquFtA','ses_e1ae4c00affemR9yFukRrTAtZs',19,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b5268001H6Od5oFRegpebu","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b48cd001nsbxhCK1SWJvuW","type":"step-finish","reason":"tool-calls","snapshot":"14fde7ff377ce415a4693931a531af4fcd161e48","cost":0,"tokens":{"total":1090,"input":1000,"output":60,"reasoning":30,"cache":{"read":0,"write":0}}},"time":1794845135464}');
INSERT INTO "event" VALUES('evt_1e51b526b001sdxDD45SqcsSAS','ses_e1ae4c00affemR9yFukRrTAtZs',20,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b48cd001nsbxhCK1SWJvuW","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"assistant","time":{"created":1794845133005},"parentID":"msg_1e51b4051001fsGJgWcRJ6iXj6","modelID":"scripted","providerID":"lab","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1090,"input":1000,"output":60,"reasoning":30,"cache":{"read":0,"write":0}},"finish":"tool-calls"}}');
INSERT INTO "event" VALUES('evt_1e51b52a4001i7dkJYRcBzjdvS','ses_e1ae4c00affemR9yFukRrTAtZs',21,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b52a4001yrR9aESdw03KvP","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b48cd001nsbxhCK1SWJvuW","type":"patch","hash":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","files":["/home/dev/project/made.txt"]},"time":1794845135524}');
INSERT INTO "event" VALUES('evt_1e51b52a8001LSFNH2o6g49Eep','ses_e1ae4c00affemR9yFukRrTAtZs',22,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b48cd001nsbxhCK1SWJvuW","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"assistant","time":{"created":1794845133005,"completed":1794845135528},"parentID":"msg_1e51b4051001fsGJgWcRJ6iXj6","modelID":"scripted","providerID":"lab","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1090,"input":1000,"output":60,"reasoning":30,"cache":{"read":0,"write":0}},"finish":"tool-calls"}}');
INSERT INTO "event" VALUES('evt_1e51b52af001CgH3xRrYXVbibG','ses_e1ae4c00affemR9yFukRrTAtZs',23,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b52af001zo6W0MM2wv63dR","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"assistant","time":{"created":1794845135535},"parentID":"msg_1e51b4051001fsGJgWcRJ6iXj6","modelID":"scripted","providerID":"lab","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}}}}');
INSERT INTO "event" VALUES('evt_1e51b52b5001e7JSumpW6BiSx2','ses_e1ae4c00affemR9yFukRrTAtZs',24,'session.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"ses_e1ae4c00affemR9yFukRrTAtZs","slug":"playful-forest","projectID":"df03d782722d91de726b73c7b466fecd3192ea59","directory":"/home/dev/project","path":"","summary":{"additions":0,"deletions":0,"files":0},"cost":0,"tokens":{"input":1000,"output":60,"reasoning":30,"cache":{"read":0,"write":0}},"title":"{\"title\": \"Scripted session\", \"isNewTopic\": true}","agent":"build","model":{"id":"scripted","providerID":"lab","variant":"default"},"version":"1.18.33","time":{"created":1794845130741,"updated":1794845135540},"permission":[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]}}');
INSERT INTO "event" VALUES('evt_1e51b532e001S7qO0Ezv8YfGNH','ses_e1ae4c00affemR9yFukRrTAtZs',25,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b532e001e6dRu3XB70sZ5b","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b52af001zo6W0MM2wv63dR","type":"step-start","snapshot":"14fde7ff377ce415a4693931a531af4fcd161e48"},"time":1794845135662}');
INSERT INTO "event" VALUES('evt_1e51b5333001Iy8NSgltP2fRZx','ses_e1ae4c00affemR9yFukRrTAtZs',26,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b533300199wM0LbXd8kHxN","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b52af001zo6W0MM2wv63dR","type":"tool","callID":"call_e0cd0118e53f391e85f9900f","tool":"bash","state":{"status":"pending","input":{},"raw":""}},"time":1794845135667}');
INSERT INTO "event" VALUES('evt_1e51b533d001MskTFEKQp2CMBJ','ses_e1ae4c00affemR9yFukRrTAtZs',27,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b533300199wM0LbXd8kHxN","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b52af001zo6W0MM2wv63dR","type":"tool","callID":"call_e0cd0118e53f391e85f9900f","tool":"bash","state":{"status":"running","input":{"command":"cat missing.txt","description":"Run a command"},"metadata":{"output":""},"time":{"start":1794845135677}}},"time":1794845135677}');
INSERT INTO "event" VALUES('evt_1e51b5341001OFfeiBGjZJQ5b7','ses_e1ae4c00affemR9yFukRrTAtZs',28,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b533300199wM0LbXd8kHxN","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b52af001zo6W0MM2wv63dR","type":"tool","callID":"call_e0cd0118e53f391e85f9900f","tool":"bash","state":{"status":"running","input":{"command":"cat missing.txt","description":"Run a command"},"metadata":{"output":""},"time":{"start":1794845135677}}},"time":1794845135681}');
INSERT INTO "event" VALUES('evt_1e51b5358001uSYr5adiCebyQG','ses_e1ae4c00affemR9yFukRrTAtZs',29,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b533300199wM0LbXd8kHxN","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b52af001zo6W0MM2wv63dR","type":"tool","callID":"call_e0cd0118e53f391e85f9900f","tool":"bash","state":{"status":"running","input":{"command":"cat missing.txt","description":"Run a command"},"metadata":{"output":"cat: missing.txt: No such file or directory\n"},"time":{"start":1794845135677}}},"time":1794845135704}');
INSERT INTO "event" VALUES('evt_1e51b535c001qSKPDMQWZZto5t','ses_e1ae4c00affemR9yFukRrTAtZs',30,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b533300199wM0LbXd8kHxN","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b52af001zo6W0MM2wv63dR","type":"tool","callID":"call_e0cd0118e53f391e85f9900f","tool":"bash","state":{"status":"completed","input":{"command":"cat missing.txt","description":"Run a command"},"output":"cat: missing.txt: No such file or directory\n","title":"cat missing.txt","metadata":{"output":"cat: missing.txt: No such file or directory\n","exit":1,"truncated":false},"time":{"start":1794845135677,"end":1794845135708}}},"time":1794845135708}');
INSERT INTO "event" VALUES('evt_1e51b5383001aaBMONg2pUJszb','ses_e1ae4c00affemR9yFukRrTAtZs',31,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b4051001fsGJgWcRJ6iXj6","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"user","time":{"created":1794845130833},"summary":{"diffs":[{"file":"made.txt","patch":"Index: made.txt\n===================================================================\n--- made.txt\t\n+++ made.txt\t\n@@ -0,0 +1,1 @@\n+made\n","additions":1,"deletions":0,"status":"added"}]},"agent":"build","model":{"providerID":"lab","modelID":"scripted"}}}');
INSERT INTO "event" VALUES('evt_1e51b53a6001NT54UF0k3PRn7h','ses_e1ae4c00affemR9yFukRrTAtZs',32,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b53a5001obZVUmlkapgrWH","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b52af001zo6W0MM2wv63dR","type":"step-finish","reason":"tool-calls","snapshot":"14fde7ff377ce415a4693931a531af4fcd161e48","cost":0,"tokens":{"total":1270,"input":250,"output":20,"reasoning":0,"cache":{"read":1000,"write":0}}},"time":1794845135782}');
INSERT INTO "event" VALUES('evt_1e51b53ac001jiNZUSCL12Srcm','ses_e1ae4c00affemR9yFukRrTAtZs',33,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b52af001zo6W0MM2wv63dR","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"assistant","time":{"created":1794845135535},"parentID":"msg_1e51b4051001fsGJgWcRJ6iXj6","modelID":"scripted","providerID":"lab","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1270,"input":250,"output":20,"reasoning":0,"cache":{"read":1000,"write":0}},"finish":"tool-calls"}}');
INSERT INTO "event" VALUES('evt_1e51b53da001IS1T1nfekNiExp','ses_e1ae4c00affemR9yFukRrTAtZs',34,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b52af001zo6W0MM2wv63dR","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"assistant","time":{"created":1794845135535,"completed":1794845135834},"parentID":"msg_1e51b4051001fsGJgWcRJ6iXj6","modelID":"scripted","providerID":"lab","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1270,"input":250,"output":20,"reasoning":0,"cache":{"read":1000,"write":0}},"finish":"tool-calls"}}');
INSERT INTO "event" VALUES('evt_1e51b53e1001O3VzfhZCrFD03D','ses_e1ae4c00affemR9yFukRrTAtZs',35,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b53df001AfadUQFBfrpVx1","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"assistant","time":{"created":1794845135839},"parentID":"msg_1e51b4051001fsGJgWcRJ6iXj6","modelID":"scripted","providerID":"lab","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}}}}');
INSERT INTO "event" VALUES('evt_1e51b53e9001o0KnBsGVxhg8cN','ses_e1ae4c00affemR9yFukRrTAtZs',36,'session.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"ses_e1ae4c00affemR9yFukRrTAtZs","slug":"playful-forest","projectID":"df03d782722d91de726b73c7b466fecd3192ea59","directory":"/home/dev/project","path":"","summary":{"additions":0,"deletions":0,"files":0},"cost":0,"tokens":{"input":1250,"output":80,"reasoning":30,"cache":{"read":1000,"write":0}},"title":"{\"title\": \"Scripted session\", \"isNewTopic\": true}","agent":"build","model":{"id":"scripted","providerID":"lab","variant":"default"},"version":"1.18.33","time":{"created":1794845130741,"updated":1794845135848},"permission":[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]}}');
INSERT INTO "event" VALUES('evt_1e51b543e001bbfhbnVTZlQLKX','ses_e1ae4c00affemR9yFukRrTAtZs',37,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b543e001sS0660D03iuni1","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b53df001AfadUQFBfrpVx1","type":"step-start","snapshot":"14fde7ff377ce415a4693931a531af4fcd161e48"},"time":1794845135934}');
INSERT INTO "event" VALUES('evt_1e51b5441001cyCH3tAOIX39FB','ses_e1ae4c00affemR9yFukRrTAtZs',38,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b5440001c8v0uqDOdOABi8","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b53df001AfadUQFBfrpVx1","type":"text","text":"","time":{"start":1794845135936}},"time":1794845135936}');
INSERT INTO "event" VALUES('evt_1e51b5443001h3ZfVmcIU9Fd97','ses_e1ae4c00affemR9yFukRrTAtZs',39,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b5440001c8v0uqDOdOABi8","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b53df001AfadUQFBfrpVx1","type":"text","text":"The file is there.","time":{"start":1794845135936,"end":1794845135938}},"time":1794845135939}');
INSERT INTO "event" VALUES('evt_1e51b5467001jPWaRuA4Km1fcz','ses_e1ae4c00affemR9yFukRrTAtZs',40,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b4051001fsGJgWcRJ6iXj6","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"user","time":{"created":1794845130833},"summary":{"diffs":[{"file":"made.txt","patch":"Index: made.txt\n===================================================================\n--- made.txt\t\n+++ made.txt\t\n@@ -0,0 +1,1 @@\n+made\n","additions":1,"deletions":0,"status":"added"}]},"agent":"build","model":{"providerID":"lab","modelID":"scripted"}}}');
INSERT INTO "event" VALUES('evt_1e51b5497001jT5j2pJu8hHix8','ses_e1ae4c00affemR9yFukRrTAtZs',41,'message.part.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","part":{"id":"prt_1e51b5497001hBMywtFG7rDzfC","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","messageID":"msg_1e51b53df001AfadUQFBfrpVx1","type":"step-finish","reason":"stop","snapshot":"14fde7ff377ce415a4693931a531af4fcd161e48","cost":0,"tokens":{"total":1310,"input":100,"output":10,"reasoning":0,"cache":{"read":1200,"write":0}}},"time":1794845136023}');
INSERT INTO "event" VALUES('evt_1e51b549a001DTbBR5yIUmzW3l','ses_e1ae4c00affemR9yFukRrTAtZs',42,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b53df001AfadUQFBfrpVx1","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"assistant","time":{"created":1794845135839},"parentID":"msg_1e51b4051001fsGJgWcRJ6iXj6","modelID":"scripted","providerID":"lab","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1310,"input":100,"output":10,"reasoning":0,"cache":{"read":1200,"write":0}},"finish":"stop"}}');
INSERT INTO "event" VALUES('evt_1e51b54bc001tVNzYkeqSym4hL','ses_e1ae4c00affemR9yFukRrTAtZs',43,'message.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"msg_1e51b53df001AfadUQFBfrpVx1","sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","role":"assistant","time":{"created":1794845135839,"completed":1794845136060},"parentID":"msg_1e51b4051001fsGJgWcRJ6iXj6","modelID":"scripted","providerID":"lab","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1310,"input":100,"output":10,"reasoning":0,"cache":{"read":1200,"write":0}},"finish":"stop"}}');
INSERT INTO "event" VALUES('evt_1e51b54c3001o1t3BbMXitriPp','ses_e1ae4c00affemR9yFukRrTAtZs',44,'session.updated.1','{"sessionID":"ses_e1ae4c00affemR9yFukRrTAtZs","info":{"id":"ses_e1ae4c00affemR9yFukRrTAtZs","slug":"playful-forest","projectID":"df03d782722d91de726b73c7b466fecd3192ea59","directory":"/home/dev/project","path":"","summary":{"additions":0,"deletions":0,"files":0},"cost":0,"tokens":{"input":1350,"output":90,"reasoning":30,"cache":{"read":2200,"write":0}},"title":"{\"title\": \"Scripted session\", \"isNewTopic\": true}","agent":"build","model":{"id":"scripted","providerID":"lab","variant":"default"},"version":"1.18.33","time":{"created":1794845130741,"updated":1794845136066},"permission":[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]}}');
CREATE TABLE `event_sequence` (
          `aggregate_id` text PRIMARY KEY,
          `seq` integer NOT NULL,
          `owner_id` text
        );
INSERT INTO "event_sequence" VALUES('ses_e1ae4c00affemR9yFukRrTAtZs',44,NULL);
CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1e51b4051001fsGJgWcRJ6iXj6','ses_e1ae4c00affemR9yFukRrTAtZs',1794845130833,1794845135976,'{"role":"user","time":{"created":1794845130833},"agent":"build","model":{"providerID":"lab","modelID":"scripted"},"summary":{"diffs":[{"file":"made.txt","patch":"Index: made.txt\n===================================================================\n--- made.txt\t\n+++ made.txt\t\n@@ -0,0 +1,1 @@\n+made\n","additions":1,"deletions":0,"status":"added"}]}}');
INSERT INTO "message" VALUES('msg_1e51b48cd001nsbxhCK1SWJvuW','ses_e1ae4c00affemR9yFukRrTAtZs',1794845133005,1794845135529,'{"parentID":"msg_1e51b4051001fsGJgWcRJ6iXj6","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1090,"input":1000,"output":60,"reasoning":30,"cache":{"write":0,"read":0}},"modelID":"scripted","providerID":"lab","time":{"created":1794845133005,"completed":1794845135528},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1e51b52af001zo6W0MM2wv63dR','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135535,1794845135835,'{"parentID":"msg_1e51b4051001fsGJgWcRJ6iXj6","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1270,"input":250,"output":20,"reasoning":0,"cache":{"write":0,"read":1000}},"modelID":"scripted","providerID":"lab","time":{"created":1794845135535,"completed":1794845135834},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1e51b53df001AfadUQFBfrpVx1','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135839,1794845136061,'{"parentID":"msg_1e51b4051001fsGJgWcRJ6iXj6","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1310,"input":100,"output":10,"reasoning":0,"cache":{"write":0,"read":1200}},"modelID":"scripted","providerID":"lab","time":{"created":1794845135839,"completed":1794845136060},"finish":"stop"}');
CREATE TABLE "migration" (id TEXT PRIMARY KEY, time_completed INTEGER NOT NULL);
INSERT INTO "migration" VALUES('20260127222353_familiar_lady_ursula',1794845129536);
INSERT INTO "migration" VALUES('20260211171708_add_project_commands',1794845129537);
INSERT INTO "migration" VALUES('20260213144116_wakeful_the_professor',1794845129537);
INSERT INTO "migration" VALUES('20260225215848_workspace',1794845129537);
INSERT INTO "migration" VALUES('20260227213759_add_session_workspace_id',1794845129537);
INSERT INTO "migration" VALUES('20260228203230_blue_harpoon',1794845129538);
INSERT INTO "migration" VALUES('20260303231226_add_workspace_fields',1794845129538);
INSERT INTO "migration" VALUES('20260309230000_move_org_to_state',1794845129538);
INSERT INTO "migration" VALUES('20260312043431_session_message_cursor',1794845129538);
INSERT INTO "migration" VALUES('20260323234822_events',1794845129538);
INSERT INTO "migration" VALUES('20260410174513_workspace-name',1794845129538);
INSERT INTO "migration" VALUES('20260413175956_chief_energizer',1794845129538);
INSERT INTO "migration" VALUES('20260423070820_add_icon_url_override',1794845129538);
INSERT INTO "migration" VALUES('20260427172553_slow_nightmare',1794845129538);
INSERT INTO "migration" VALUES('20260428004200_add_session_path',1794845129538);
INSERT INTO "migration" VALUES('20260501142318_next_venus',1794845129538);
INSERT INTO "migration" VALUES('20260504145000_add_sync_owner',1794845129539);
INSERT INTO "migration" VALUES('20260507164347_add_workspace_time',1794845129539);
INSERT INTO "migration" VALUES('20260510033149_session_usage',1794845129539);
INSERT INTO "migration" VALUES('20260511000411_data_migration_state',1794845129539);
INSERT INTO "migration" VALUES('20260511173437_session-metadata',1794845129539);
INSERT INTO "migration" VALUES('20260601010001_normalize_storage_paths',1794845129540);
INSERT INTO "migration" VALUES('20260601202201_amazing_prowler',1794845129540);
INSERT INTO "migration" VALUES('20260602002951_lowly_union_jack',1794845129540);
INSERT INTO "migration" VALUES('20260602182828_add_project_directories',1794845129540);
INSERT INTO "migration" VALUES('20260603001617_session_message_projection_indexes',1794845129540);
INSERT INTO "migration" VALUES('20260603040000_session_message_projection_order',1794845129540);
INSERT INTO "migration" VALUES('20260603141458_session_input_inbox',1794845129540);
INSERT INTO "migration" VALUES('20260603160727_jittery_ezekiel_stane',1794845129540);
INSERT INTO "migration" VALUES('20260604172448_event_sourced_session_input',1794845129540);
INSERT INTO "migration" VALUES('20260605003541_add_session_context_snapshot',1794845129540);
INSERT INTO "migration" VALUES('20260605042240_add_context_epoch_agent',1794845129540);
INSERT INTO "migration" VALUES('20260611035744_credential',1794845129540);
INSERT INTO "migration" VALUES('20260611192811_lush_chimera',1794845129541);
INSERT INTO "migration" VALUES('20260612174303_project_dir_strategy',1794845129541);
INSERT INTO "migration" VALUES('20260622142730_simplify_session_context_epoch',1794845129541);
INSERT INTO "migration" VALUES('20260622170816_reset_v2_session_state',1794845129541);
INSERT INTO "migration" VALUES('20260622202450_simplify_session_input',1794845129541);
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1e51b4059001DNQJrbCmApOKXf','msg_1e51b4051001fsGJgWcRJ6iXj6','ses_e1ae4c00affemR9yFukRrTAtZs',1794845132931,1794845132946,'{"type":"text","text":"\"make a file please\""}');
INSERT INTO "part" VALUES('prt_1e51b50f8001U2OfZrs6YH06GO','msg_1e51b48cd001nsbxhCK1SWJvuW','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135096,1794845135098,'{"snapshot":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e51b5100001RrvSn79WYNaVPw','msg_1e51b48cd001nsbxhCK1SWJvuW','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135104,1794845135110,'{"type":"reasoning","text":"The file is missing, so I make it.","time":{"start":1794845135104,"end":1794845135109}}');
INSERT INTO "part" VALUES('prt_1e51b51070016ebgl3URfr4iB3','msg_1e51b48cd001nsbxhCK1SWJvuW','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135111,1794845135214,'{"type":"text","text":"I make it.","time":{"start":1794845135111,"end":1794845135212}}');
INSERT INTO "part" VALUES('prt_1e51b510f0013Exbnx0bgpiC3F','msg_1e51b48cd001nsbxhCK1SWJvuW','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135119,1794845135340,'{"type":"tool","tool":"bash","callID":"call_d2959070991f342debab275f","state":{"status":"completed","input":{"command":"echo made > made.txt; cat made.txt","description":"Run a command"},"output":"made\n","metadata":{"output":"made\n","exit":0,"truncated":false},"title":"echo made > made.txt; cat made.txt","time":{"start":1794845135183,"end":1794845135339}}}');
INSERT INTO "part" VALUES('prt_1e51b5268001H6Od5oFRegpebu','msg_1e51b48cd001nsbxhCK1SWJvuW','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135464,1794845135466,'{"reason":"tool-calls","snapshot":"14fde7ff377ce415a4693931a531af4fcd161e48","type":"step-finish","tokens":{"total":1090,"input":1000,"output":60,"reasoning":30,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO "part" VALUES('prt_1e51b52a4001yrR9aESdw03KvP','msg_1e51b48cd001nsbxhCK1SWJvuW','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135524,1794845135525,'{"type":"patch","hash":"4a49478e400f5afd590c6a88b19658c85bbcf3ee","files":["/home/dev/project/made.txt"]}');
INSERT INTO "part" VALUES('prt_1e51b532e001e6dRu3XB70sZ5b','msg_1e51b52af001zo6W0MM2wv63dR','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135662,1794845135663,'{"snapshot":"14fde7ff377ce415a4693931a531af4fcd161e48","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e51b533300199wM0LbXd8kHxN','msg_1e51b52af001zo6W0MM2wv63dR','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135667,1794845135710,'{"type":"tool","tool":"bash","callID":"call_e0cd0118e53f391e85f9900f","state":{"status":"completed","input":{"command":"cat missing.txt","description":"Run a command"},"output":"cat: missing.txt: No such file or directory\n","metadata":{"output":"cat: missing.txt: No such file or directory\n","exit":1,"truncated":false},"title":"cat missing.txt","time":{"start":1794845135677,"end":1794845135708}}}');
INSERT INTO "part" VALUES('prt_1e51b53a5001obZVUmlkapgrWH','msg_1e51b52af001zo6W0MM2wv63dR','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135782,1794845135783,'{"reason":"tool-calls","snapshot":"14fde7ff377ce415a4693931a531af4fcd161e48","type":"step-finish","tokens":{"total":1270,"input":250,"output":20,"reasoning":0,"cache":{"write":0,"read":1000}},"cost":0}');
INSERT INTO "part" VALUES('prt_1e51b543e001sS0660D03iuni1','msg_1e51b53df001AfadUQFBfrpVx1','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135934,1794845135935,'{"snapshot":"14fde7ff377ce415a4693931a531af4fcd161e48","type":"step-start"}');
INSERT INTO "part" VALUES('prt_1e51b5440001c8v0uqDOdOABi8','msg_1e51b53df001AfadUQFBfrpVx1','ses_e1ae4c00affemR9yFukRrTAtZs',1794845135936,1794845135940,'{"type":"text","text":"The file is there.","time":{"start":1794845135936,"end":1794845135938}}');
INSERT INTO "part" VALUES('prt_1e51b5497001hBMywtFG7rDzfC','msg_1e51b53df001AfadUQFBfrpVx1','ses_e1ae4c00affemR9yFukRrTAtZs',1794845136023,1794845136024,'{"reason":"stop","snapshot":"14fde7ff377ce415a4693931a531af4fcd161e48","type":"step-finish","tokens":{"total":1310,"input":100,"output":10,"reasoning":0,"cache":{"write":0,"read":1200}},"cost":0}');
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
INSERT INTO "project" VALUES('df03d782722d91de726b73c7b466fecd3192ea59','/home/dev/project','git',NULL,NULL,NULL,NULL,1794845130054,1794845130054,NULL,'[]',NULL);
CREATE TABLE `project_directory` (
          `project_id` text NOT NULL,
          `directory` text NOT NULL,
          `type` text,
          `strategy` text,
          `time_created` integer NOT NULL,
          CONSTRAINT `project_directory_pk` PRIMARY KEY(`project_id`, `directory`),
          CONSTRAINT `fk_project_directory_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "project_directory" VALUES('df03d782722d91de726b73c7b466fecd3192ea59','/home/dev/project',NULL,NULL,1794845130058);
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
INSERT INTO "session" VALUES('ses_e1ae4c00affemR9yFukRrTAtZs','df03d782722d91de726b73c7b466fecd3192ea59',NULL,NULL,'playful-forest','/home/dev/project','','{"title": "Scripted session", "isNewTopic": true}','1.18.33',NULL,0,0,0,NULL,NULL,0.0,1350,90,30,2200,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"scripted","providerID":"lab","variant":"default"}',1794845130741,1794845136066,NULL,NULL);
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
